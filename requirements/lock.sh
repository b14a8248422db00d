#!/usr/bin/env bash
# Writes all locks: for every platform, with hashes, without the address of any index.
set -euo pipefail
cd "$(dirname "$0")/.."
UV=${UV:-.venv/bin/uv}
MORE=("$@")
lock() {
    local out=requirements/$1.txt
    shift
    "$UV" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
        --no-emit-find-links --no-annotate --custom-compile-command "make lock" --output-file "$out" "${MORE[@]}" "$@"
}
lock bootstrap requirements/bootstrap.in
lock cpu --extra cpu --excludes requirements/absent.in pyproject.toml
lock gpu --extra gpu --excludes requirements/absent.in pyproject.toml
lock dev --extra cpu --extra openvino --extra llm --extra bento --group dev --constraint requirements/cpu.txt --constraint requirements/bootstrap.txt \
    --excludes requirements/absent.in pyproject.toml
lock bento-cpu --extra cpu --extra bento --group service --constraint requirements/dev.txt \
    --excludes requirements/absent.in --excludes requirements/unused.in pyproject.toml
lock bento-gpu --extra gpu --extra bento --group service --constraint requirements/dev.txt \
    --excludes requirements/absent.in --excludes requirements/unused.in pyproject.toml requirements/tensorrt.in
lock bench requirements/bench.in --constraint requirements/dev.txt
lock browser requirements/browser.in --constraint requirements/dev.txt
lock buckets requirements/buckets.in
lock clients requirements/clients.in
lock deploy requirements/deploy.in --constraint requirements/dev.txt
lock fil requirements/fil.in --constraint requirements/dev.txt
lock ocr requirements/ocr.in --constraint requirements/dev.txt
lock sentences requirements/sentences.in --constraint requirements/torch.txt
lock site requirements/site.in
lock supply requirements/supply.in
lock tensorflow requirements/tensorflow.in --constraint requirements/dev.txt
lock tensorrt-next requirements/tensorrt-next.in
lock tensorrt-rtx requirements/tensorrt-rtx.in
lock torch requirements/torch.in --constraint requirements/dev.txt
lock train requirements/train.in
lock triton requirements/triton.in
lock wheel requirements/wheel.in --constraint requirements/dev.txt
