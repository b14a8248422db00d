/* Memory on GPUs, and its handles, which other processes open. */
#define _GNU_SOURCE
#include "cuda.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* set in each address on a GPU, and in none of the host */
#define FAR (1ULL << 62)
#define PERCENT (160ULL << 20)

struct handle {
    char magic[8];
    int process, file, gpu, unused;
    /* another file may have its number later */
    unsigned long inode;
    size_t bytes;
    char rest[64 - 8 - 4 * sizeof(int) - sizeof(unsigned long) - sizeof(size_t)];
};
_Static_assert(sizeof(struct handle) == 64, "that of CUDA");

struct memory {
    struct memory *next;
    char *at;
    size_t bytes;
    int file, gpu;
    /* how often, where another process has allocated it */
    int opened;
    struct handle handle;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct memory *memories;
static size_t allocated;

static size_t length(const struct memory *memory) { return memory->bytes ? memory->bytes : 1; }

static unsigned long inode(int file) {
    struct stat found;
    return fstat(file, &found) ? 0 : found.st_ino;
}

/* --- with the lock held --- */

static struct memory *find(address at, size_t bytes) {
    char *start = (char *)(at ^ FAR);
    for (struct memory *one = memories; one; one = one->next)
        if (one->at <= start && start < one->at + length(one) && bytes <= (size_t)(one->at + length(one) - start))
            return one;
    return NULL;
}

static int map(struct memory made, address *at) {
    made.at = mmap(NULL, length(&made), PROT_READ | PROT_WRITE, MAP_SHARED, made.file, 0);
    if (made.at == MAP_FAILED) return OUT_OF_MEMORY;
    made.next = memories;
    memories = memcpy(malloc(sizeof made), &made, sizeof made);
    *at = (address)made.at ^ FAR;
    return OK;
}

static void unmap(struct memory *gone) {
    struct memory **link = &memories;
    while (*link != gone) link = &(*link)->next;
    *link = gone->next;
    munmap(gone->at, length(gone));
    close(gone->file);
    free(gone);
}

static int open_handle(const struct handle *handle, address *at) {
    for (struct memory *one = memories; one; one = one->next) {
        if (!one->opened || memcmp(&one->handle, handle, sizeof *handle)) continue;
        one->opened++;
        *at = (address)one->at ^ FAR;
        return OK;
    }
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", handle->process, handle->file);
    struct memory made = {.bytes = handle->bytes, .gpu = handle->gpu, .opened = 1, .handle = *handle};
    made.file = open(path, O_RDWR | O_CLOEXEC);
    if (made.file < 0) return INVALID_VALUE;
    int status = inode(made.file) == handle->inode ? map(made, at) : INVALID_VALUE;
    if (status) close(made.file);
    return status;
}

/* --- for streams --- */

void *on_host(address at, size_t bytes, int *file) {
    pthread_mutex_lock(&lock);
    struct memory *memory = find(at, bytes);
    if (memory && file) *file = dup(memory->file);
    pthread_mutex_unlock(&lock);
    return memory ? (void *)(at ^ FAR) : NULL;
}

void wait_until_idle(int file) {
    flock(file, LOCK_SH);
    flock(file, LOCK_UN);
    close(file);
}

/* --- memory of this process --- */

/* Of the bytes that this process has allocated: a function for tests. */
EXPORT size_t stand_in_allocated(void) {
    pthread_mutex_lock(&lock);
    size_t bytes = allocated;
    pthread_mutex_unlock(&lock);
    return bytes;
}

EXPORT int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes) {
    if (current_gpu() < 0) return INVALID_CONTEXT;
    const char *percent = getenv("STAND_IN_FREE_PERCENT");
    *total_bytes = 100 * PERCENT;
    *free_bytes = percent ? strtoul(percent, NULL, 10) * PERCENT : *total_bytes - stand_in_allocated();
    return OK;
}

EXPORT int cuMemAlloc_v2(address *at, size_t bytes) {
    struct memory made = {.bytes = bytes, .gpu = current_gpu()};
    if (made.gpu < 0) return INVALID_CONTEXT;
    const char *most = getenv("STAND_IN_GPU_BYTES");
    made.file = memfd_create("stand-in-gpu", MFD_CLOEXEC);
    pthread_mutex_lock(&lock);
    int fits = !most || allocated + bytes <= strtoull(most, NULL, 10);
    int status = fits && !ftruncate(made.file, length(&made)) ? map(made, at) : OUT_OF_MEMORY;
    if (status)
        close(made.file);
    else
        allocated += bytes;
    pthread_mutex_unlock(&lock);
    return status;
}

EXPORT int cuMemFree_v2(address at) {
    wait_for_default_stream();
    pthread_mutex_lock(&lock);
    struct memory *memory = find(at, 0);
    int known = memory && (char *)(at ^ FAR) == memory->at && !memory->opened;
    if (known) {
        allocated -= memory->bytes;
        unmap(memory);
    }
    pthread_mutex_unlock(&lock);
    return known ? OK : INVALID_VALUE;
}

EXPORT int cuMemGetAddressRange_v2(address *start, size_t *bytes, address at) {
    if (current_gpu() < 0) return INVALID_CONTEXT;
    pthread_mutex_lock(&lock);
    struct memory *memory = find(at, 0);
    if (memory) {
        *start = (address)memory->at ^ FAR;
        *bytes = memory->bytes;
    }
    pthread_mutex_unlock(&lock);
    return memory ? OK : INVALID_VALUE;
}

EXPORT int cuMemHostAlloc(void **at, size_t bytes, unsigned flags) {
    if (current_gpu() < 0) return INVALID_CONTEXT;
    *at = malloc(bytes);
    return OK;
}

EXPORT int cuMemFreeHost(void *at) {
    free(at);
    return OK;
}

/* --- memory of other processes --- */

EXPORT int cuIpcGetMemHandle(struct handle *handle, address at) {
    pthread_mutex_lock(&lock);
    struct memory *memory = find(at, 0);
    if (memory) {
        struct handle made = {.magic = "standin",
                              .process = getpid(),
                              .file = memory->file,
                              .gpu = memory->gpu,
                              .inode = inode(memory->file),
                              .bytes = memory->bytes};
        *handle = made;
    }
    pthread_mutex_unlock(&lock);
    return memory ? OK : INVALID_VALUE;
}

EXPORT int cuIpcOpenMemHandle_v2(address *at, struct handle handle, unsigned flags) {
    int gpu = current_gpu();
    if (gpu < 0 || handle.process == getpid()) return INVALID_CONTEXT;
    if (memcmp(handle.magic, "standin", 8)) return INVALID_VALUE;
    if (handle.gpu != gpu) return PEER_ACCESS_UNSUPPORTED;
    pthread_mutex_lock(&lock);
    int status = open_handle(&handle, at);
    pthread_mutex_unlock(&lock);
    return status;
}

EXPORT int cuIpcCloseMemHandle(address at) {
    int file;
    if (current_gpu() < 0) return INVALID_CONTEXT;
    if (!on_host(at, 0, &file)) return INVALID_VALUE;
    wait_until_idle(file);
    wait_for_default_stream();
    pthread_mutex_lock(&lock);
    struct memory *memory = find(at, 0);
    int known = memory && memory->opened;
    if (known && --memory->opened == 0) unmap(memory);
    pthread_mutex_unlock(&lock);
    return known ? OK : INVALID_VALUE;
}
