/* A libnvidia-ml.so.1 that answers from a file of recorded values, for the real pynvml.
 *
 * NVML_RECORDED names the file: lines "KEY VALUE", where KEY is "system/FUNCTION" or "INDEX/FUNCTION[/PART]" and VALUE
 * is a number, a text, "!CODE" (the call fails with it), "hang" (it never returns), or several of these, separated by
 * " | ": one for each call, the last of them for all that follow. What is not in the file is NOT_SUPPORTED. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, TIMEOUT = 10 };
typedef struct { char key[128], value[512]; int calls; } line;
typedef struct { char path[32]; } device; /* what its keys begin with: "0" or "0/mig/1" */
typedef struct { char path[64]; } sample;
static line lines[4096];
static int count;

static line *find(const char *key) {
    for (int i = 0; i < count; i++) if (!strcmp(lines[i].key, key)) return &lines[i];
    return NULL;
}

/* The value of this call, or its error. */
static int text(const char *path, const char *name, const char *part, char *out, size_t size) {
    char key[256], all[512], *next, *one;
    snprintf(key, sizeof key, "%s/%s%s%s", path, name, *part ? "/" : "", part);
    line *found = find(key);
    if (!found) return NOT_SUPPORTED;
    strcpy(all, found->value);
    one = all;
    for (int i = 0; i < found->calls && (next = strstr(one, " | ")); i++) one = next + 3;
    found->calls++;
    if ((next = strstr(one, " | "))) *next = 0;
    if (!strcmp(one, "hang")) for (;;) pause();
    if (*one == '!') return atoi(one + 1);
    snprintf(out, size, "%s", one);
    return OK;
}

static int number(const char *path, const char *name, const char *part, unsigned long long *out) {
    char value[512];
    int failed = text(path, name, part, value, sizeof value);
    if (!failed) *out = strtoull(value, NULL, 0);
    return failed;
}

static int number32(const char *path, const char *name, const char *part, unsigned *out) {
    unsigned long long value;
    int failed = number(path, name, part, &value);
    if (!failed) *out = (unsigned)value;
    return failed;
}

static const char *digits(unsigned value) {
    static char all[4][16];
    static int turn;
    turn = (turn + 1) % 4;
    sprintf(all[turn], "%u", value);
    return all[turn];
}

int nvmlInitWithFlags(unsigned flags) {
    char row[1024];
    FILE *file = fopen(getenv("NVML_RECORDED"), "r");
    if (!file) return INVALID;
    for (count = 0; count < 4096 && fgets(row, sizeof row, file); count++)
        sscanf(row, "%127s %511[^\n]", lines[count].key, lines[count].value);
    fclose(file);
    int failed = text("system", "nvmlInit", "", row, sizeof row);
    return failed == NOT_SUPPORTED ? OK : failed;
}
const char *nvmlErrorString(int code) { return "an error without a name"; }

#define SYSTEM_TEXT(name) int name(char *out, unsigned size) { return text("system", #name, "", out, size); }
#define TEXT(name) int name(device *dev, char *out, unsigned size) { return text(dev->path, #name, "", out, size); }
#define U32(name) int name(device *dev, unsigned *out) { return number32(dev->path, #name, "", out); }
#define U64(name) int name(device *dev, unsigned long long *out) { return number(dev->path, #name, "", out); }
#define U32_OF(name) \
    int name(device *dev, unsigned of, unsigned *out) { return number32(dev->path, #name, digits(of), out); }

SYSTEM_TEXT(nvmlSystemGetDriverVersion)
int nvmlSystemGetCudaDriverVersion_v2(unsigned *out) { return number32("system", __func__, "", out); }
int nvmlDeviceGetCount_v2(unsigned *out) { return number32("system", "nvmlDeviceGetCount", "", out); }
TEXT(nvmlDeviceGetName) TEXT(nvmlDeviceGetUUID)
U32(nvmlDeviceGetPowerUsage) U32(nvmlDeviceGetEnforcedPowerLimit) U32(nvmlDeviceGetPersistenceMode)
U32(nvmlDeviceGetCurrPcieLinkGeneration) U32(nvmlDeviceGetMaxPcieLinkGeneration) U32(nvmlDeviceGetCurrPcieLinkWidth)
U32(nvmlDeviceGetMaxPcieLinkWidth) U32(nvmlDeviceGetPcieReplayCounter) U32(nvmlDeviceGetMemoryBusWidth)
U32(nvmlDeviceGetMaxMigDeviceCount) U32(nvmlDeviceGetGpuInstanceId) U32(nvmlDeviceGetComputeInstanceId)
U32(nvmlDeviceGetRetiredPagesPendingStatus)
U64(nvmlDeviceGetCurrentClocksEventReasons) U64(nvmlDeviceGetCurrentClocksThrottleReasons)
U64(nvmlDeviceGetSupportedEventTypes)
U32_OF(nvmlDeviceGetClockInfo) U32_OF(nvmlDeviceGetMaxClockInfo) U32_OF(nvmlDeviceGetTemperature)
U32_OF(nvmlDeviceGetTemperatureThreshold) U32_OF(nvmlDeviceGetPcieThroughput) U32_OF(nvmlDeviceGetNvLinkState)

static int handle(const char *path, device **out) {
    static device all[64];
    for (int i = 0; i < 64; i++)
        if (!*all[i].path || !strcmp(all[i].path, path)) {
            strcpy(all[i].path, path);
            *out = &all[i];
            return OK;
        }
    return NOT_FOUND;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, device **out) {
    unsigned answer;
    int failed = number32(digits(index), "nvmlDeviceGetHandleByIndex", "", &answer);
    return failed && failed != NOT_SUPPORTED ? failed : handle(digits(index), out);
}
int nvmlDeviceGetMigDeviceHandleByIndex(device *dev, unsigned index, device **out) {
    char path[64];
    unsigned slices = 0;
    number32(dev->path, "mig", "count", &slices);
    snprintf(path, sizeof path, "%.16s/mig/%u", dev->path, index);
    return index < slices ? handle(path, out) : NOT_FOUND;
}

struct memory { unsigned long long total, free, used; };
struct memory_v2 { unsigned version; unsigned long long total, reserved, free, used; };
int nvmlDeviceGetMemoryInfo(device *dev, struct memory *out) {
    int failed = number(dev->path, __func__, "total", &out->total);
    number(dev->path, __func__, "free", &out->free);
    number(dev->path, __func__, "used", &out->used);
    return failed;
}
int nvmlDeviceGetMemoryInfo_v2(device *dev, struct memory_v2 *out) {
    int failed = number(dev->path, __func__, "total", &out->total);
    number(dev->path, __func__, "reserved", &out->reserved);
    number(dev->path, __func__, "free", &out->free);
    number(dev->path, __func__, "used", &out->used);
    return failed;
}
int nvmlDeviceGetUtilizationRates(device *dev, unsigned *out) {
    number32(dev->path, __func__, "memory", out + 1);
    return number32(dev->path, __func__, "gpu", out);
}
int nvmlDeviceGetPciInfo_v3(device *dev, char *out) { /* busIdLegacy[16], five numbers, busId[32] */
    return text(dev->path, "nvmlDeviceGetPciInfo", "", out + 36, 32);
}
int nvmlDeviceGetTotalEccErrors(device *dev, unsigned kind, unsigned counter, unsigned long long *out) {
    return number(dev->path, __func__, digits(kind), out);
}
int nvmlDeviceGetRemappedRows(device *dev, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed) {
    number32(dev->path, __func__, "uncorrected", uncorrected);
    number32(dev->path, __func__, "pending", pending);
    number32(dev->path, __func__, "failed", failed);
    return number32(dev->path, __func__, "corrected", corrected);
}
int nvmlDeviceGetRetiredPages(device *dev, unsigned cause, unsigned *size, unsigned long long *out) {
    unsigned pages = 0;
    int failed = number32(dev->path, __func__, digits(cause), &pages);
    if (failed) return failed;
    if (out) memset(out, 0, pages * sizeof *out);
    *size = pages;
    return out ? OK : TOO_SMALL;
}
int nvmlDeviceGetMigMode(device *dev, unsigned *now, unsigned *pending) {
    int failed = number32(dev->path, __func__, "", now);
    *pending = *now;
    return failed;
}

struct process { unsigned pid; unsigned long long used; unsigned gpu_instance, compute_instance; };
static int processes(device *dev, const char *name, unsigned *size, struct process *out) {
    char part[32];
    unsigned running = 0;
    int failed = number32(dev->path, name, "count", &running);
    if (failed) return failed;
    if (!running) return *size = 0, OK;
    if (*size < running) return *size = running, TOO_SMALL;
    for (unsigned i = 0; i < running; i++) {
        out[i] = (struct process){0, -1, -1, -1};
        sprintf(part, "%u/pid", i); number32(dev->path, name, part, &out[i].pid);
        sprintf(part, "%u/used", i); number(dev->path, name, part, &out[i].used);
        sprintf(part, "%u/instance", i); number32(dev->path, name, part, &out[i].gpu_instance);
    }
    *size = running;
    return OK;
}
#define PROCESSES(name) int name(device *dev, unsigned *size, struct process *out) { return processes(dev, #name, size, out); }
PROCESSES(nvmlDeviceGetComputeRunningProcesses_v2) PROCESSES(nvmlDeviceGetComputeRunningProcesses_v3)
PROCESSES(nvmlDeviceGetGraphicsRunningProcesses_v3)

struct field { unsigned id, scope; long long timestamp, latency; unsigned type; int failed; unsigned long long value; };
int nvmlDeviceGetFieldValues(device *dev, int size, struct field *fields) {
    for (int i = 0; i < size; i++) {
        unsigned narrow = 0;
        number32(dev->path, "narrow", digits(fields[i].id), &narrow);
        fields[i].type = narrow ? 1 : 3;
        fields[i].failed = number(dev->path, __func__, digits(fields[i].id), &fields[i].value);
    }
    return OK;
}

int nvmlEventSetCreate(device ***set) { return *set = calloc(1, sizeof **set), OK; }
int nvmlDeviceRegisterEvents(device *dev, unsigned long long types, device **set) { return *set = dev, OK; }
struct event { device *dev; unsigned long long type, data; unsigned gpu_instance, compute_instance; };
int nvmlEventSetWait_v2(device **set, struct event *out, unsigned timeout) {
    int failed = number((*set)->path, "xids", "", &out->data);
    out->dev = *set;
    return failed == NOT_SUPPORTED || !out->data ? TIMEOUT : failed;
}

int nvmlGpmQueryDeviceSupport(device *dev, unsigned *out) {
    if (number32(dev->path, __func__, "", out + 1)) out[1] = 0;
    return OK;
}
int nvmlGpmSampleAlloc(sample **out) { return *out = calloc(1, sizeof **out), OK; }
int nvmlGpmSampleFree(sample *old) { return free(old), OK; }
int nvmlGpmSampleGet(device *dev, sample *out) { return snprintf(out->path, 64, "%s/gpm", dev->path), OK; }
int nvmlGpmMigSampleGet(device *dev, unsigned instance, sample *out) {
    char key[64], value[64];
    snprintf(key, sizeof key, "%s/gpm-mig/%u", dev->path, instance);
    int failed = text(key, "supported", "", value, sizeof value);
    return snprintf(out->path, 64, "%s", key), failed;
}
struct metric { unsigned id; int failed; double value; char *names[3]; };
struct metrics { unsigned version, size; sample *before, *after; struct metric all[]; };
int nvmlGpmMetricsGet(struct metrics *asked) {
    char value[64];
    for (unsigned i = 0; i < asked->size; i++) {
        struct metric *one = &asked->all[i];
        one->failed = text(asked->after->path, digits(one->id), "", value, sizeof value);
        if (!one->failed) one->value = atof(value);
    }
    return OK;
}
