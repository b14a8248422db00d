"""Both clients of Cohere: documents, the best first"""

import sys

import cohere


def main(http: str) -> None:
    documents = ["w1 w2", "w3", "w1 w2 w3 w4"]
    newer = cohere.ClientV2(api_key="none", base_url=f"http://{http}")
    found = newer.rerank(model="ranker", query="w5", documents=documents, top_n=2)
    assert len(found.results) == 2
    assert found.results[0].relevance_score >= found.results[1].relevance_score
    assert found.meta is not None
    assert found.meta.tokens is not None
    assert found.meta.tokens.input_tokens == 3 * 4 + 7
    older = cohere.Client(api_key="none", base_url=f"http://{http}")
    answer = older.rerank(model="ranker", query="w5", documents=documents, return_documents=True)
    assert [one.index for one in answer.results[:2]] == [one.index for one in found.results]
    found_texts = [one.document.text for one in answer.results if one.document]
    assert found_texts == [documents[one.index] for one in answer.results]


if __name__ == "__main__":
    main(sys.argv[1])
