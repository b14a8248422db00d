/* Stands in for NVML, libnvidia-ml.so.1: two GPUs with the names of UUIDS, which say what files in FOLDER say. The second
 * one cannot tell its power. tests/nvml.py writes these files.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NOT_FOUND 6
#define NOT_SUPPORTED 3
struct utilization { unsigned gpu, memory; };
struct memory { unsigned long long total, free, used; };
static const char *uuids[2] = {UUIDS};

static char *path(const char *name) {
    static __thread char text[4096];
    snprintf(text, sizeof text, "%s/%s", FOLDER, name);
    return text;
}

static long long told(long device, int which) {
    long long values[4] = { 0 };
    char name[32];
    snprintf(name, sizeof name, "gpu%ld", device - 1);
    FILE *file = fopen(path(name), "r");
    if (file) {
        for (int i = 0; i < 4; i++) if (fscanf(file, "%lld", &values[i]) != 1) break;
        fclose(file);
    }
    return values[which];
}

static int there(const char *name) { return access(path(name), F_OK) == 0; }

static void pass(void) { while (there("hangs")) usleep(1000); }

static void called(void) {
    FILE *file = fopen(path("calls"), "a");
    if (file) { fputs(".", file); fclose(file); }
    pass();
}

int nvmlInit_v2(void) { pass(); return there("broken") ? 9 : 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int status) {
    return status == NOT_SUPPORTED ? "Not Supported" : status == 9 ? "Driver Not Loaded" : "Not Found";
}
int nvmlDeviceGetCount_v2(unsigned *count) { *count = there("none") ? 0 : 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = (void *)(long)(index + 1); return 0; }
int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length) {
    snprintf(uuid, length, "%s", uuids[(long)device - 1]);
    return 0;
}
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    if (strcmp(uuid, "MIG-part-of-the-second")) return NOT_FOUND;
    *device = (void *)99;
    return 0;
}
int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void *part, void **device) {
    *device = (void *)2;
    return part == (void *)99 ? 0 : NOT_FOUND;
}
int nvmlDeviceGetUtilizationRates(void *device, struct utilization *rates) {
    called();
    rates->gpu = (unsigned)told((long)device, 0);
    rates->memory = 77;
    return 0;
}
int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory) {
    memory->total = 80ULL << 30;
    memory->used = (unsigned long long)told((long)device, 1);
    memory->free = memory->total - memory->used;
    return 0;
}
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) {
    *milliwatts = (unsigned)told((long)device, 2);
    return device == (void *)2 ? NOT_SUPPORTED : 0;
}
int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *milliwatts) {
    *milliwatts = 700000;
    return device == (void *)2 ? NOT_SUPPORTED : 0;
}
int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules) {
    *millijoules = (unsigned long long)told((long)device, 3);
    return device == (void *)2 ? NOT_SUPPORTED : 0;
}
