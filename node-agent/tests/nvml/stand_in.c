/* A stand-in for libnvidia-ml.so.1, for tests: it answers from the text file `nvml.txt` beside it, which it reads at each call.
 *
 * Lines are `KEY VALUE`. Keys begin with a GPU (`0.power 250000`) or a MIG device (`0.mig.3.memory_used 1024`). A key that is
 * missing is not supported (3). The value `error N` is the return value N; `hang` waits for up to 60 s while the file says so, and
 * makes the file `hangs` beside it.
 * `0.lost 1` takes a GPU off the bus; `driver 1`, another number than before, loads the driver again. Names and structures are those of nvml.h.
 *
 * Build: cc -shared -fPIC -o libnvidia-ml.so.1 stand_in.c
 * With -DDRIVER_470 it has the calls of that driver in place of newer ones, no look-up by UUID, and the name of event reasons.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, SMALL = 7, TIMEOUT = 10, LOST = 15, UNKNOWN = 999 };
typedef unsigned long long u64;
typedef struct Device *Device;

/* Finds the value of a key. Returns 0 if there is none. */
/* Opens a file beside this library. */
static FILE *beside(const char *name, const char *mode) {
    Dl_info info;
    char path[4096];
    if (!dladdr((void *)beside, &info)) return 0;
    snprintf(path, sizeof path - 16, "%s", info.dli_fname);
    char *slash = strrchr(path, '/');
    strcpy(slash ? slash + 1 : path, name);
    return fopen(path, mode);
}

static int look(const char *key, char *value, size_t size) {
    char line[4096];
    FILE *file = beside("nvml.txt", "r");
    if (!file) return 0;
    int found = 0;
    while (fgets(line, sizeof line, file)) {
        char *space = strchr(line, ' ');
        if (!space) continue;
        *space = 0;
        space[strcspn(space + 1, "\n") + 1] = 0;
        if (strcmp(line, key) == 0) {
            snprintf(value, size, "%s", space + 1);
            found = 1;
        }
    }
    fclose(file);
    return found;
}

/* Gets the text of a key, waits if it says so, and returns the result of the call. */
static int text_of(const char *key, char *value, size_t size) {
    int waited;
    for (waited = 0; waited < 6000; waited++) {
        if (!look(key, value, size)) return NOT_SUPPORTED;
        if (strcmp(value, "hang") != 0) break;
        FILE *mark = waited == 0 ? beside("hangs", "w") : 0;
        if (mark) fclose(mark);
        nanosleep(&(struct timespec){0, 10 * 1000 * 1000}, 0);
    }
    if (waited == 6000) return UNKNOWN;
    return strncmp(value, "error ", 6) == 0 ? atoi(value + 6) : SUCCESS;
}

static Device handle(unsigned gpu, unsigned mig) { return (Device)(size_t)((gpu + 1) | (mig + 1) << 16); }
static unsigned gpu_of(Device device) { return ((unsigned)(size_t)device & 0xffff) - 1; }
static int is_mig(Device device) { return (size_t)device >> 16 > 0 && ((size_t)device >> 16) < 1000; }

static int is_lost(unsigned gpu) {
    char key[64], value[64];
    snprintf(key, sizeof key, "%u.lost", gpu);
    return look(key, value, sizeof value) && strcmp(value, "1") == 0;
}

/* The number of the driver when the library was initialized. After it was loaded again, calls fail until the library is initialized. */
static int driver = -1;
static int loaded_driver(void) {
    char value[64];
    return look("driver", value, sizeof value) ? atoi(value) : 0;
}
static int is_uninitialized(void) { return driver != loaded_driver(); }

/* Gets the text of a device. */
static int text(Device device, char *value, size_t size, const char *format, ...) {
    char key[128], name[64];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(name, sizeof name, format, arguments);
    va_end(arguments);
    if (is_uninitialized()) return UNINITIALIZED;
    if (is_lost(gpu_of(device))) return LOST;
    if (is_mig(device))
        snprintf(key, sizeof key, "%u.mig.%u.%s", gpu_of(device), (unsigned)((size_t)device >> 16) - 1, name);
    else
        snprintf(key, sizeof key, "%u.%s", gpu_of(device), name);
    return text_of(key, value, size);
}

struct Violation { u64 reference, violation; };
struct Rates { unsigned gpu, memory; };
struct Memory { unsigned version; u64 total, reserved, free, used; };
struct Support { unsigned version, is_supported; };
#define NUMBER(device, out, ...)                                                                                               \
    do {                                                                                                                       \
        char value_[4096];                                                                                                     \
        int result_ = text(device, value_, sizeof value_, __VA_ARGS__);                                                        \
        if (result_ != SUCCESS) return result_;                                                                                \
        *(out) = strtoull(value_, 0, 10);                                                                                      \
    } while (0)

int nvmlInit_v2(void) {
    char value[64];
    int result = text_of("init", value, sizeof value);
    if (result != NOT_SUPPORTED && result != SUCCESS) return result;
    driver = loaded_driver();
    return SUCCESS;
}
int nvmlShutdown(void) {
    if (driver == -1) return UNINITIALIZED;
    driver = -1;
    return SUCCESS;
}
int nvmlSystemGetDriverVersion(char *version, unsigned length) {
    snprintf(version, length, "550.54.15");
    return SUCCESS;
}
int nvmlDeviceGetCount_v2(unsigned *count) {
    char value[64];
    int result = is_uninitialized() ? UNINITIALIZED : text_of("gpus", value, sizeof value);
    if (result == SUCCESS) *count = atoi(value);
    return result;
}
int nvmlDeviceGetUUID(Device device, char *uuid, unsigned length) { return text(device, uuid, length, "uuid"); }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *device) {
    if (is_uninitialized()) return UNINITIALIZED;
    if (is_lost(index)) return LOST;
    *device = handle(index, -1);
    return SUCCESS;
}
int nvmlDeviceGetMaxMigDeviceCount(Device device, unsigned *count) { NUMBER(device, count, "mig_count"); return SUCCESS; }
int nvmlDeviceGetMigDeviceHandleByIndex(Device device, unsigned index, Device *mig) {
    char value[256];
    int result = text(handle(gpu_of(device), index), value, sizeof value, "uuid");
    *mig = handle(gpu_of(device), index);
    return result == NOT_SUPPORTED ? NOT_FOUND : result;
}
#ifndef DRIVER_470
int nvmlDeviceGetHandleByUUID(const char *uuid, Device *device) {
    unsigned gpus = 0;
    char value[256];
    nvmlDeviceGetCount_v2(&gpus);
    for (unsigned gpu = 0; gpu < gpus; gpu++)
        for (int mig = -1; mig < 16; mig++)
            if (text(handle(gpu, mig), value, sizeof value, "uuid") == SUCCESS && strcmp(value, uuid) == 0) {
                *device = handle(gpu, mig);
                return SUCCESS;
            }
    return NOT_FOUND;
}
#endif
int nvmlDeviceGetMinorNumber(Device device, unsigned *minor) { NUMBER(device, minor, "minor"); return SUCCESS; }
int nvmlDeviceGetGpuInstanceId(Device device, unsigned *id) { NUMBER(device, id, "instance"); return SUCCESS; }
int nvmlDeviceGetTotalEnergyConsumption(Device device, u64 *energy) { NUMBER(device, energy, "energy"); return SUCCESS; }
int nvmlDeviceGetPowerUsage(Device device, unsigned *power) { NUMBER(device, power, "power"); return SUCCESS; }
int nvmlDeviceGetEnforcedPowerLimit(Device device, unsigned *limit) { NUMBER(device, limit, "power_limit"); return SUCCESS; }
int nvmlDeviceGetClockInfo(Device device, unsigned type, unsigned *clock) { NUMBER(device, clock, "clock.%u", type); return SUCCESS; }
int nvmlDeviceGetTemperature(Device device, unsigned sensor, unsigned *celsius) {
    (void)sensor;
    NUMBER(device, celsius, "temperature");
    return SUCCESS;
}
#ifdef DRIVER_470
#define nvmlDeviceGetCurrentClocksThrottleReasons nvmlDeviceGetCurrentClocksEventReasons
#endif
int nvmlDeviceGetCurrentClocksThrottleReasons(Device device, u64 *reasons) { NUMBER(device, reasons, "throttle"); return SUCCESS; }
int nvmlDeviceGetPcieThroughput(Device device, unsigned counter, unsigned *rate) {
    NUMBER(device, rate, "pcie.%u", counter);
    return SUCCESS;
}
int nvmlDeviceGetPcieReplayCounter(Device device, unsigned *replays) { NUMBER(device, replays, "pcie_replays"); return SUCCESS; }
int nvmlDeviceGetTotalEccErrors(Device device, unsigned error, unsigned counter, u64 *count) {
    NUMBER(device, count, "ecc.%u.%u", error, counter);
    return SUCCESS;
}
int nvmlDeviceGetViolationStatus(Device device, unsigned policy, struct Violation *time) {
    NUMBER(device, &time->violation, "violation.%u", policy);
    time->reference = 1;
    return SUCCESS;
}
int nvmlDeviceGetUtilizationRates(Device device, struct Rates *rates) {
    NUMBER(device, &rates->gpu, "utilization");
    NUMBER(device, &rates->memory, "memory_utilization");
    return SUCCESS;
}
#ifndef DRIVER_470
int nvmlDeviceGetMemoryInfo_v2(Device device, struct Memory *memory) {
    NUMBER(device, &memory->total, "memory_total");
    NUMBER(device, &memory->used, "memory_used");
    memory->reserved = 1 << 20;
    memory->free = memory->total - memory->used - memory->reserved;
    return SUCCESS;
}
#else
struct OldMemory { u64 total, free, used; };
int nvmlDeviceGetMemoryInfo(Device device, struct OldMemory *memory) {
    NUMBER(device, &memory->total, "memory_total");
    NUMBER(device, &memory->used, "memory_used");
    memory->free = memory->total - memory->used;
    return SUCCESS;
}
#endif
struct FieldValue { unsigned field, scope; long long timestamp, latency; unsigned type; int result; u64 value; };
int nvmlDeviceGetFieldValues(Device device, int count, struct FieldValue *values) {
    for (int i = 0; i < count; i++) {
        char value[64];
        values[i].type = 3; /* unsigned long long */
        values[i].result = text(device, value, sizeof value, "field.%u.%u", values[i].field, values[i].scope);
        if (values[i].result == SUCCESS) values[i].value = strtoull(value, 0, 10);
    }
    return is_lost(gpu_of(device)) ? LOST : SUCCESS;
}

/* `100:1048576,101:2097152`: processes with their memory; `100:1048576:3` is one in the GPU instance 3. */
#ifdef DRIVER_470
#define nvmlDeviceGetComputeRunningProcesses_v3 nvmlDeviceGetComputeRunningProcesses_v2
#endif
struct Process { unsigned pid; u64 memory; unsigned gpu_instance, compute_instance; };
int nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned *count, struct Process *processes) {
    char list[4096], *rest = list, *item;
    unsigned room = *count, found = 0;
    int result = text(device, list, sizeof list, "processes");
    if (result != SUCCESS) return result;
    while ((item = strsep(&rest, ",")) && *item) {
        unsigned pid, instance = -1;
        u64 memory;
        if (sscanf(item, "%u:%llu:%u", &pid, &memory, &instance) < 2) continue;
        if (found < room) processes[found] = (struct Process){pid, memory, instance, -1};
        found++;
    }
    *count = found;
    return found > room ? SMALL : SUCCESS;
}
/* `100:30:10`: the shares of processes in the time of the multiprocessors and of the memory. */
struct Utilization { unsigned pid; u64 timestamp; unsigned sm, memory, encoder, decoder; };
int nvmlDeviceGetProcessUtilization(Device device, struct Utilization *samples, unsigned *count, u64 since) {
    char list[4096], *rest = list, *item;
    unsigned room = samples ? *count : 0, found = 0;
    int result = text(device, list, sizeof list, "process_utilization");
    (void)since;
    if (result != SUCCESS) return result;
    while ((item = strsep(&rest, ",")) && *item) {
        unsigned pid, sm, memory;
        if (sscanf(item, "%u:%u:%u", &pid, &sm, &memory) != 3) continue;
        if (found < room) samples[found] = (struct Utilization){pid, since + 1000, sm, memory, 0, 0};
        found++;
    }
    *count = found;
    if (found == 0) return NOT_FOUND;
    return found > room ? SMALL : SUCCESS;
}

/* `79,48`: the critical errors so far. A set of events has those that follow its registration. */
struct EventSet { Device device; unsigned taken; };
struct EventData { Device device; u64 type, data; unsigned gpu_instance, compute_instance; };
static unsigned xids(Device device, unsigned number, u64 *xid) {
    char key[64], list[4096], *rest = list, *item;
    unsigned found = 0;
    /* Those of a GPU that is lost, too. */
    snprintf(key, sizeof key, "%u.xids", gpu_of(device));
    if (text_of(key, list, sizeof list) != SUCCESS) return 0;
    while ((item = strsep(&rest, ",")) && *item)
        if (found++ == number) *xid = strtoull(item, 0, 10);
    return found;
}
int nvmlEventSetCreate(struct EventSet **set) { return (*set = calloc(1, sizeof **set)) ? SUCCESS : UNKNOWN; }
int nvmlEventSetFree(struct EventSet *set) { free(set); return SUCCESS; }
int nvmlDeviceRegisterEvents(Device device, u64 types, struct EventSet *set) {
    char value[64];
    u64 xid;
    int result = text(device, value, sizeof value, "events");
    (void)types;
    set->device = device;
    set->taken = xids(device, 0, &xid);
    return result;
}
int nvmlEventSetWait_v2(struct EventSet *set, struct EventData *data, unsigned timeout_ms) {
    u64 xid = 0;
    (void)timeout_ms;
    if (xids(set->device, set->taken, &xid) <= set->taken) return is_lost(gpu_of(set->device)) ? LOST : TIMEOUT;
    set->taken++;
    *data = (struct EventData){set->device, 8, xid, -1, -1};
    return SUCCESS;
}

/* `0.gpm 1` is the support; `0.gpm.2 55.5` is a sum, of which the difference between two samples is the answer. */
struct Sample { double values[256]; };
struct Metric { unsigned id; int result; double value; char *names[3]; };
struct Metrics { unsigned version, count; struct Sample *first, *second; struct Metric metrics[]; };
int nvmlGpmQueryDeviceSupport(Device device, struct Support *support) {
    NUMBER(device, &support->is_supported, "gpm");
    return SUCCESS;
}
int nvmlGpmSampleAlloc(struct Sample **sample) { return (*sample = calloc(1, sizeof **sample)) ? SUCCESS : UNKNOWN; }
int nvmlGpmSampleFree(struct Sample *sample) { free(sample); return SUCCESS; }
int nvmlGpmSampleGet(Device device, struct Sample *sample) {
    for (unsigned id = 0; id < 256; id++) {
        char value[64];
        int result = text(device, value, sizeof value, "gpm.%u", id);
        if (result == LOST) return result;
        sample->values[id] = result == SUCCESS ? atof(value) : -1;
    }
    return SUCCESS;
}
int nvmlGpmMigSampleGet(Device device, unsigned instance, struct Sample *sample) {
    for (unsigned mig = 0; mig < 16; mig++) {
        char value[64];
        Device of = handle(gpu_of(device), mig);
        if (text(of, value, sizeof value, "instance") == SUCCESS && (unsigned)atoi(value) == instance)
            return nvmlGpmSampleGet(of, sample);
    }
    return INVALID;
}
int nvmlGpmMetricsGet(struct Metrics *metrics) {
    for (unsigned i = 0; i < metrics->count; i++) {
        struct Metric *metric = &metrics->metrics[i];
        double last = metrics->second->values[metric->id];
        metric->result = last < 0 ? NOT_SUPPORTED : SUCCESS;
        metric->value = last - metrics->first->values[metric->id];
    }
    return SUCCESS;
}
