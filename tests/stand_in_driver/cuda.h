/* Stands in for CUDA's driver, libcuda.so.1: two GPUs, on a machine that has none.
 *
 * devices.c  the GPUs, contexts, names of errors, and where functions are found by name
 * memory.c   memory on a GPU is a file of the host's memory: other processes can open it by its handle. Its addresses
 *            are no addresses of the host, so that nothing that takes one for the other goes unseen
 * streams.c  each stream is a thread with a queue, and what is put into it is done later. Kernels are functions of the
 *            host
 *
 * What differs from a GPU, so that tests see what a GPU shows by chance alone:
 * - a copy to or from the host that is the last in its stream is done when somebody waits for it, or puts something
 *   behind it. So what is read without waiting is never there
 * - a copy to or from the host, and the closing of another process's memory, take a lock on the file of that memory.
 *   As long as a test holds the lock, the GPU is busy
 *
 * What the environment says:
 * - CUDA_VISIBLE_DEVICES: there is no GPU where it is empty. Other values show both
 * - STAND_IN_COMPUTE: the compute capability, 90 for 9.0 where it is not set; 90,80 has another one on the second GPU
 * - STAND_IN_GPU_BYTES: so much can this process allocate, on both GPUs together
 * - STAND_IN_FREE_PERCENT: so much of the memory of each GPU is free. Where it is not set, all but what this process
 *   has allocated
 * - STAND_IN_MODELS_COMPUTE: where it is set, the stream of each context is full of work of models: what would wait for
 *   it is refused
 */
#pragma once
#include <pthread.h>
#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))
#define GPUS 2

enum status {
    OK = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    PEER_ACCESS_UNSUPPORTED = 217,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    LAUNCH_FAILED = 719,
};

/* on a GPU */
typedef unsigned long long address;

/* The GPU of the context that is current to this thread, -1 where none is. */
int current_gpu(void);

/* Where these bytes are on the host, NULL where they are no memory of a GPU. `file` is a new descriptor of that memory,
 * which the caller closes; it may be NULL. */
void *on_host(address at, size_t bytes, int *file);

/* Waits until the GPU is not busy with the memory that `file` is of, and closes `file`. */
void wait_until_idle(int file);

/* Waits for all that was put into the stream that the contexts of this process share. */
void wait_for_default_stream(void);
