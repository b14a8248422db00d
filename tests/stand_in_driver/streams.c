/* Streams, events and graphs. */
#include "cuda.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NON_BLOCKING 1

typedef void (*kernel)(void);

/* Each record of an event has a turn of its own. Streams wait for the last one that was put into a stream. */
struct event {
    long recorded, done;
};

struct op {
    enum { COPY_IN, COPY_OUT, COPY_INSIDE, RECORD, WAIT, KERNEL, END } kind;
    address device, other;
    void *host;
    size_t bytes;
    /* a copy of the host's bytes, freed behind the copy to the GPU */
    void *taken;
    struct event *at;
    long turn;
    kernel run;
    struct op *next;
};

struct list {
    struct op *first, *last;
};

struct stream {
    int gpu;
    unsigned flags;
    struct list ops;
    /* how many were put in, how many are done, and how many somebody has waited for */
    long put, done, awaited;
    struct list *recording;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct stream default_stream;

static void append(struct list *list, struct op *one) {
    one->next = NULL;
    if (list->last)
        list->last->next = one;
    else
        list->first = one;
    list->last = one;
}

/* --- the thread of a stream --- */

static void *memory_of(address at, size_t bytes, int *file) {
    void *found = on_host(at, bytes, file);
    if (found) return found;
    fprintf(stderr, "the stand-in driver: memory was freed before a copy that uses it was done\n");
    abort();
}

static void copy_with_host(const struct op *one) {
    int file;
    void *memory = memory_of(one->device, one->bytes, &file);
    wait_until_idle(file);
    if (one->kind == COPY_IN)
        memcpy(memory, one->host, one->bytes);
    else
        memcpy(one->host, memory, one->bytes);
    free(one->taken);
}

static void perform(const struct op *one) {
    switch (one->kind) {
    case COPY_IN:
    case COPY_OUT: copy_with_host(one); break;
    case COPY_INSIDE:
        memcpy(memory_of(one->device, one->bytes, NULL), memory_of(one->other, one->bytes, NULL), one->bytes);
        break;
    case KERNEL: one->run(); break;
    case RECORD:
        pthread_mutex_lock(&lock);
        if (one->at->done < one->turn) one->at->done = one->turn;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
        break;
    case WAIT:
        pthread_mutex_lock(&lock);
        while (one->at->done < one->turn) pthread_cond_wait(&changed, &lock);
        pthread_mutex_unlock(&lock);
        break;
    case END: break;
    }
}

static int may_begin(const struct stream *own) {
    const struct op *first = own->ops.first;
    if (!first) return 0;
    int is_held_back = first->kind == COPY_IN || first->kind == COPY_OUT;
    return !is_held_back || first->next || own->done < own->awaited;
}

static void *run_stream(void *given) {
    struct stream *own = given;
    for (int ended = 0; !ended;) {
        pthread_mutex_lock(&lock);
        while (!may_begin(own)) pthread_cond_wait(&changed, &lock);
        struct op *one = own->ops.first;
        own->ops.first = one->next;
        if (!one->next) own->ops.last = NULL;
        pthread_mutex_unlock(&lock);
        perform(one);
        ended = one->kind == END;
        free(one);
        pthread_mutex_lock(&lock);
        own->done++;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
    }
    free(own);
    return NULL;
}

static void start(struct stream *own) {
    pthread_t thread;
    pthread_create(&thread, NULL, run_stream, own);
    pthread_detach(thread);
}

static void start_default_stream(void) { start(&default_stream); }

/* --- what is put into a stream --- */

/* NULL is the stream that contexts have. */
static int check(const struct stream *own) {
    int gpu = current_gpu();
    if (gpu < 0) return INVALID_CONTEXT;
    if (own && own->gpu != gpu) return INVALID_HANDLE;
    if (own && own->flags & NON_BLOCKING) return OK;
    return getenv("STAND_IN_MODELS_COMPUTE") ? NOT_READY : OK;
}

static struct stream *or_default(struct stream *own) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (own) return own;
    pthread_once(&once, start_default_stream);
    return &default_stream;
}

static int put(struct stream *into, struct op what) {
    int status = check(into);
    if (status) return status;
    into = or_default(into);
    struct op *one = memcpy(malloc(sizeof what), &what, sizeof what);
    pthread_mutex_lock(&lock);
    if (into->recording) {
        append(into->recording, one);
    } else {
        if (one->kind == RECORD) one->turn = ++one->at->recorded;
        if (one->kind == WAIT) one->turn = one->at->recorded;
        append(&into->ops, one);
        into->put++;
    }
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return OK;
}

static int put_copy(struct stream *into, struct op what) {
    if (!on_host(what.device, what.bytes, NULL)) return INVALID_VALUE;
    if (what.kind == COPY_INSIDE && !on_host(what.other, what.bytes, NULL)) return INVALID_VALUE;
    return put(into, what);
}

static void wait_for(struct stream *own) {
    pthread_mutex_lock(&lock);
    long all = own->put;
    if (own->awaited < all) own->awaited = all;
    pthread_cond_broadcast(&changed);
    while (own->done < all) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

void wait_for_default_stream(void) { wait_for(&default_stream); }

/* --- streams --- */

EXPORT int cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    *least = 0;
    *greatest = -5;
    return OK;
}

EXPORT int cuStreamCreateWithPriority(struct stream **made, unsigned flags, int priority) {
    int gpu = current_gpu();
    if (gpu < 0) return INVALID_CONTEXT;
    *made = calloc(1, sizeof **made);
    (*made)->gpu = gpu;
    (*made)->flags = flags;
    start(*made);
    return OK;
}

EXPORT int cuStreamCreate(struct stream **made, unsigned flags) { return cuStreamCreateWithPriority(made, flags, 0); }

EXPORT int cuStreamDestroy_v2(struct stream *own) { return put(own, (struct op){.kind = END}); }

EXPORT int cuStreamSynchronize(struct stream *own) {
    int status = check(own);
    if (!status) wait_for(own ? own : &default_stream);
    return status;
}

/* Other streams are not waited for: nothing here needs it. */
EXPORT int cuCtxSynchronize(void) { return cuStreamSynchronize(NULL); }

EXPORT int cuMemcpyHtoDAsync_v2(address to, const void *from, size_t bytes, struct stream *own) {
    return put_copy(own, (struct op){.kind = COPY_IN, .device = to, .host = (void *)from, .bytes = bytes});
}

EXPORT int cuMemcpyDtoHAsync_v2(void *to, address from, size_t bytes, struct stream *own) {
    return put_copy(own, (struct op){.kind = COPY_OUT, .device = from, .host = to, .bytes = bytes});
}

EXPORT int cuMemcpyDtoDAsync_v2(address to, address from, size_t bytes, struct stream *own) {
    return put_copy(own, (struct op){.kind = COPY_INSIDE, .device = to, .other = from, .bytes = bytes});
}

/* The bytes are taken when it returns, and are there later. */
EXPORT int cuMemcpyHtoD_v2(address to, const void *from, size_t bytes) {
    void *taken = memcpy(malloc(bytes ? bytes : 1), from, bytes);
    int status = put_copy(
        NULL, (struct op){.kind = COPY_IN, .device = to, .host = taken, .bytes = bytes, .taken = taken});
    if (status) free(taken);
    return status;
}

EXPORT int cuMemcpyDtoH_v2(void *to, address from, size_t bytes) {
    int status = cuMemcpyDtoHAsync_v2(to, from, bytes, NULL);
    return status ? status : cuStreamSynchronize(NULL);
}

/* Puts a function of the host into a stream: a function for tests. */
EXPORT int stand_in_kernel(struct stream *own, kernel run) { return put(own, (struct op){.kind = KERNEL, .run = run}); }

/* --- events --- */

EXPORT int cuEventCreate(struct event **made, unsigned flags) {
    if (current_gpu() < 0) return INVALID_CONTEXT;
    *made = calloc(1, sizeof **made);
    return OK;
}

/* It is kept: streams that wait may still name it. */
EXPORT int cuEventDestroy_v2(struct event *at) { return OK; }

EXPORT int cuEventRecord(struct event *at, struct stream *own) { return put(own, (struct op){.kind = RECORD, .at = at}); }

EXPORT int cuStreamWaitEvent(struct stream *own, struct event *at, unsigned flags) {
    return put(own, (struct op){.kind = WAIT, .at = at});
}

EXPORT int cuEventSynchronize(struct event *at) {
    pthread_mutex_lock(&lock);
    for (long turn = at->recorded; at->done < turn;) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    return OK;
}

/* --- graphs --- */

EXPORT int cuStreamBeginCapture_v2(struct stream *own, int mode) {
    pthread_mutex_lock(&lock);
    own->recording = calloc(1, sizeof *own->recording);
    pthread_mutex_unlock(&lock);
    return OK;
}

EXPORT int cuStreamIsCapturing(struct stream *own, int *status) {
    pthread_mutex_lock(&lock);
    *status = own->recording != NULL;
    pthread_mutex_unlock(&lock);
    return OK;
}

EXPORT int cuStreamEndCapture(struct stream *own, struct list **made) {
    pthread_mutex_lock(&lock);
    *made = own->recording;
    own->recording = NULL;
    pthread_mutex_unlock(&lock);
    return *made ? OK : INVALID_VALUE;
}

EXPORT int cuGraphInstantiateWithFlags(struct list **made, const struct list *of, unsigned long long flags) {
    *made = calloc(1, sizeof **made);
    for (const struct op *one = of->first; one; one = one->next)
        append(*made, memcpy(malloc(sizeof *one), one, sizeof *one));
    return OK;
}

EXPORT int cuGraphDestroy(struct list *of) {
    for (struct op *one = of->first; one;) {
        struct op *gone = one;
        one = one->next;
        free(gone);
    }
    free(of);
    return OK;
}

EXPORT int cuGraphExecDestroy(struct list *of) { return cuGraphDestroy(of); }

EXPORT int cuGraphLaunch(const struct list *of, struct stream *own) {
    int status = OK;
    for (const struct op *one = of->first; one && !status; one = one->next) status = put(own, *one);
    return status;
}
