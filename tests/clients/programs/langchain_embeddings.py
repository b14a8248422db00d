"""LangChain's embeddings of OpenAI, which sends many texts at once"""

import sys

from langchain_openai import OpenAIEmbeddings


def main(http: str) -> None:
    made = OpenAIEmbeddings(
        model="vectors",
        base_url=f"http://{http}/v1",
        api_key="none",
        check_embedding_ctx_length=False,
        chunk_size=2000,
    )
    given = [f"w{number % 50}" for number in range(1500)]
    found = made.embed_documents(given)
    assert len(found) == 1500
    assert found[0] == found[50]
    difference = max(abs(one - other) for one, other in zip(made.embed_query("w1"), found[1], strict=True))
    assert difference < 1e-6, difference


if __name__ == "__main__":
    main(sys.argv[1])
