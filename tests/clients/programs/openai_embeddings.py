"""The client of OpenAI: vectors, in both encodings, and what it makes of errors"""

import sys

import openai


def main(http: str) -> None:
    client = openai.OpenAI(base_url=f"http://{http}/v1", api_key="none", max_retries=0)
    assert "vectors" in [one.id for one in client.models.list()]
    assert client.models.retrieve("vectors").id == "vectors"
    given = ["w1 w2", "w3"]
    encoded = client.embeddings.create(model="vectors", input=given)
    plain = client.embeddings.create(model="vectors", input=given, encoding_format="float")
    assert [one.index for one in encoded.data] == [0, 1]
    assert [one.embedding for one in encoded.data] == [one.embedding for one in plain.data]
    assert (encoded.model, encoded.usage.prompt_tokens, encoded.usage.total_tokens) == ("vectors", 7, 7)
    single = client.embeddings.create(model="vectors", input=given[0], user="somebody")
    assert single.data[0].embedding == encoded.data[0].embedding
    assert len(client.embeddings.create(model="vectors", input=given, dimensions=2).data[0].embedding) == 2
    unknown = refusal(client, "nobody")
    assert isinstance(unknown, openai.NotFoundError), unknown
    assert (unknown.code, unknown.type) == ("model_not_found", "invalid_request_error")
    odd = refusal(client, "vectors", seed=1)
    assert isinstance(odd, openai.BadRequestError), odd
    assert "unknown field `seed`" in odd.message, odd


def refusal(client: openai.OpenAI, model: str, **more: object) -> openai.APIStatusError:
    try:
        client.embeddings.create(model=model, input="a", extra_body=more)
    except openai.APIStatusError as error:
        return error
    raise AssertionError(model)


if __name__ == "__main__":
    main(sys.argv[1])
