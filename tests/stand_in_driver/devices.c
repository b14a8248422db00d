/* GPUs and contexts. A context is the number of its GPU, from 1 on. */
#define _GNU_SOURCE
#include "cuda.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_PUSHED 16
#define COMPUTE_MAJOR 75
#define COMPUTE_MINOR 76

static __thread void *contexts[MOST_PUSHED];
static __thread int depth;

int current_gpu(void) { return depth ? (int)(size_t)contexts[depth - 1] - 1 : -1; }

EXPORT int cuInit(unsigned flags) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    return visible && !*visible ? NO_DEVICE : OK;
}

EXPORT int cuDriverGetVersion(int *version) {
    *version = 13000;
    return OK;
}

EXPORT int cuDeviceGetCount(int *count) {
    *count = GPUS;
    return OK;
}

EXPORT int cuDeviceGet(int *device, int number) {
    *device = number;
    return 0 <= number && number < GPUS ? OK : INVALID_DEVICE;
}

EXPORT int cuDeviceGetName(char *name, int bytes, int device) {
    snprintf(name, bytes, "Stand-in GPU");
    return OK;
}

EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device) {
    const char *stated = getenv("STAND_IN_COMPUTE");
    const char *second = stated && device == 1 ? strchr(stated, ',') : NULL;
    int compute = second ? atoi(second + 1) : stated ? atoi(stated) : 90;
    *value = attribute == COMPUTE_MAJOR ? compute / 10 : attribute == COMPUTE_MINOR ? compute % 10 : 0;
    return OK;
}

EXPORT int cuDevicePrimaryCtxRetain(void **context, int device) {
    *context = (void *)(size_t)(device + 1);
    return OK;
}

EXPORT int cuDevicePrimaryCtxRelease_v2(int device) { return OK; }

EXPORT int cuCtxPushCurrent_v2(void *context) {
    if (!context || depth == MOST_PUSHED) return INVALID_CONTEXT;
    contexts[depth++] = context;
    return OK;
}

EXPORT int cuCtxPopCurrent_v2(void **context) {
    if (!depth) return INVALID_CONTEXT;
    depth--;
    if (context) *context = contexts[depth];
    return OK;
}

EXPORT int cuCtxSetCurrent(void *context) {
    if (depth) depth--;
    return context ? cuCtxPushCurrent_v2(context) : OK;
}

EXPORT int cuCtxGetCurrent(void **context) {
    *context = depth ? contexts[depth - 1] : NULL;
    return OK;
}

EXPORT int cuCtxGetDevice(int *device) {
    *device = current_gpu();
    return depth ? OK : INVALID_CONTEXT;
}

EXPORT int cuGetErrorName(int status, const char **name) {
    switch (status) {
    case OK: *name = "CUDA_SUCCESS"; return OK;
    case INVALID_VALUE: *name = "CUDA_ERROR_INVALID_VALUE"; return OK;
    case OUT_OF_MEMORY: *name = "CUDA_ERROR_OUT_OF_MEMORY"; return OK;
    case NO_DEVICE: *name = "CUDA_ERROR_NO_DEVICE"; return OK;
    case INVALID_DEVICE: *name = "CUDA_ERROR_INVALID_DEVICE"; return OK;
    case INVALID_CONTEXT: *name = "CUDA_ERROR_INVALID_CONTEXT"; return OK;
    case PEER_ACCESS_UNSUPPORTED: *name = "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"; return OK;
    case INVALID_HANDLE: *name = "CUDA_ERROR_INVALID_HANDLE"; return OK;
    case NOT_FOUND: *name = "CUDA_ERROR_NOT_FOUND"; return OK;
    case NOT_READY: *name = "CUDA_ERROR_NOT_READY"; return OK;
    case LAUNCH_FAILED: *name = "CUDA_ERROR_LAUNCH_FAILED"; return OK;
    }
    *name = NULL;
    return INVALID_VALUE;
}

/* `cuda-bindings` asks for every function by its plain name. */
EXPORT int cuGetProcAddress_v2(const char *symbol, void **function, int version, unsigned long long flags, int *found) {
    static const char *const suffixes[] = {"_v2", "", "WithFlags"};
    Dl_info info;
    *function = NULL;
    void *own = dladdr((void *)cuInit, &info) ? dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD) : NULL;
    for (int suffix = 0; own && suffix < 3 && !*function; suffix++) {
        char name[128];
        snprintf(name, sizeof name, "%s%s", symbol, suffixes[suffix]);
        *function = dlsym(own, name);
    }
    if (own) dlclose(own);
    if (found) *found = *function ? 0 : 1;
    return *function ? OK : NOT_FOUND;
}
