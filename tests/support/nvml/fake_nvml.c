/*
 * The functions of NVML that stoploss calls, answering from a text file.
 *
 * FAKE_NVML names the file: one "KEY VALUE" a line. It is read again when it changes, at nvmlInit and
 * whenever GPUs are counted. A value "!N" is the NVML error N; "A+B" is a counter that starts at A and
 * grows by B a second of the driver's own clock, which goes on by a second with every call for field
 * values. A key that is not there is not supported; "all" answers every question about a GPU but who it
 * is. Keys of a GPU begin with "gpuN.", of its MIG instances with "gpuN.migM.".
 *
 * A power limit that is set holds until the file changes; FAKE_NVML_WRITES names a file that gets a line
 * "gpuN.MILLIWATTS" for each. "gpuN.power.set" is what setting one answers, "ignored" that it does nothing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, SMALL = 7, TIMEOUT = 10, UNKNOWN = 999 };

typedef struct { char key[64]; char value[256]; } Line;
typedef struct { char prefix[48]; } Device;
typedef struct { Device *device; } Sample;

typedef struct { unsigned version; unsigned long long total, reserved, free, used; } Memory2;
typedef struct { unsigned long long total, free, used; } Memory1;
typedef struct { unsigned gpu, memory; } Rates;
typedef struct { unsigned pid; unsigned long long memory; unsigned instance, compute; } Process;
typedef union { double d; unsigned u; unsigned long long ull; long long sll; } Value;
typedef struct {
    unsigned field, scope; long long timestamp, latency; unsigned type; int result; Value value;
} FieldValue;
typedef struct { Device *device; unsigned long long type, data; unsigned instance, compute; } Event;
typedef struct { unsigned metric; int result; double value; const char *info[3]; } Metric;
typedef struct { unsigned version, count; Sample *one, *two; Metric metrics[]; } Metrics;

#define DEVICES 64
static Line lines[8192];
static int line_count;
static Device devices[DEVICES], parts[DEVICES][8];
static struct timespec read_at;
static off_t read_size;
static long long seconds;
static int xids_given[DEVICES];
static unsigned limits_set[DEVICES];

static int by_key(const void *a, const void *b) { return strcmp(((Line *)a)->key, ((Line *)b)->key); }

static void load(void) {
    const char *path = getenv("FAKE_NVML");
    struct stat found;
    if (!path || stat(path, &found)) { line_count = 0; return; }
    if (found.st_mtim.tv_sec == read_at.tv_sec && found.st_mtim.tv_nsec == read_at.tv_nsec
        && found.st_size == read_size) return;
    FILE *file = fopen(path, "r");
    if (!file) { line_count = 0; return; }
    read_at = found.st_mtim;
    read_size = found.st_size;
    line_count = 0;
    memset(xids_given, 0, sizeof xids_given);
    memset(limits_set, 0, sizeof limits_set);
    char row[512];
    while (line_count < 8192 && fgets(row, sizeof row, file))
        if (sscanf(row, "%63s %255[^\n]", lines[line_count].key, lines[line_count].value) == 2) line_count++;
    fclose(file);
    qsort(lines, line_count, sizeof *lines, by_key);
}

static const char *exactly(const char *prefix, const char *name) {
    Line wanted;
    snprintf(wanted.key, sizeof wanted.key, "%s%s", prefix, name);
    Line *found = bsearch(&wanted, lines, line_count, sizeof *lines, by_key);
    return found ? found->value : NULL;
}

static const char *text(const char *prefix, const char *name) {
    const char *all = *prefix ? exactly(prefix, "all") : NULL;
    return all ? all : exactly(prefix, name);
}

static int failure(const char *value) {
    if (!value) return NOT_SUPPORTED;
    return value[0] == '!' ? atoi(value + 1) : OK;
}

static int number(const char *prefix, const char *name, unsigned long long *out) {
    const char *value = text(prefix, name);
    int failed = failure(value);
    if (failed) return failed;
    char *end;
    *out = strtoull(value, &end, 0);
    if (*end == '+') *out += strtoull(end + 1, NULL, 0) * seconds;
    return OK;
}

static int small(Device *device, const char *name, unsigned *out) {
    unsigned long long value;
    int failed = number(device->prefix, name, &value);
    if (!failed) *out = (unsigned)value;
    return failed;
}

static int words(const char *prefix, const char *name, char *out, unsigned length) {
    const char *value = text(prefix, name);
    int failed = failure(value);
    if (!failed) snprintf(out, length, "%s", value);
    return failed;
}

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    load();
    unsigned long long wait = 0;
    if (number("", "hang", &wait) == OK) sleep((unsigned)wait);
    const char *value = text("", "init");
    return value ? failure(value) : OK;
}

int nvmlShutdown(void) { return OK; }

int nvmlDeviceGetCount_v2(unsigned *count) {
    load();
    unsigned long long value = 0;
    int failed = number("", "count", &value);
    *count = (unsigned)value;
    return failed;
}

int nvmlSystemGetDriverVersion(char *out, unsigned length) { return words("", "driver", out, length); }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **out) {
    if (index >= DEVICES) return INVALID;
    Device *device = &devices[index];
    snprintf(device->prefix, sizeof device->prefix, "gpu%u.", index);
    const char *value = exactly(device->prefix, "handle");
    *out = device;
    return value ? failure(value) : OK;
}

int nvmlDeviceGetUUID(Device *device, char *out, unsigned length) {
    const char *value = exactly(device->prefix, "uuid");
    if (!failure(value)) snprintf(out, length, "%s", value);
    return failure(value);
}

int nvmlDeviceGetName(Device *device, char *out, unsigned length) {
    return words(device->prefix, "name", out, length);
}

#define NUMBER(function, name) \
    int function(Device *device, unsigned *out) { return small(device, name, out); }
NUMBER(nvmlDeviceGetPowerUsage, "power")
NUMBER(nvmlDeviceGetPerformanceState, "pstate")
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, "pcie.width")
NUMBER(nvmlDeviceGetPcieReplayCounter, "pcie.replays")
NUMBER(nvmlDeviceGetMaxMigDeviceCount, "migs")
NUMBER(nvmlDeviceGetGpuInstanceId, "instance")
NUMBER(nvmlDeviceGetMinorNumber, "minor")

int nvmlDeviceGetPowerManagementLimit(Device *device, unsigned *out) {
    unsigned given = limits_set[device - devices];
    if (given) *out = given;
    return given ? OK : small(device, "power_limit", out);
}

int nvmlDeviceGetEnforcedPowerLimit(Device *device, unsigned *out) {
    return nvmlDeviceGetPowerManagementLimit(device, out);
}

int nvmlDeviceGetPowerManagementLimitConstraints(Device *device, unsigned *least, unsigned *most) {
    int failed = small(device, "power.least", least);
    return failed ? failed : small(device, "power.most", most);
}

int nvmlDeviceSetPowerManagementLimit(Device *device, unsigned limit) {
    unsigned least, most;
    const char *answer = exactly(device->prefix, "power.set");
    int failed = answer && failure(answer) ? failure(answer)
                                           : nvmlDeviceGetPowerManagementLimitConstraints(device, &least, &most);
    if (failed) return failed;
    if (limit < least || limit > most) return INVALID;
    const char *path = getenv("FAKE_NVML_WRITES");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (file) {
        fprintf(file, "%s%u\n", device->prefix, limit);
        fclose(file);
    }
    if (!answer) limits_set[device - devices] = limit;
    return OK;
}

#define CHOICE(function, one, other) \
    int function(Device *device, int kind, unsigned *out) { return small(device, kind ? other : one, out); }
CHOICE(nvmlDeviceGetTemperature, "temperature", "temperature")
CHOICE(nvmlDeviceGetPcieThroughput, "pcie.sent", "pcie.received")

int nvmlDeviceGetClockInfo(Device *device, int kind, unsigned *out) {
    return small(device, kind == 1 ? "clock.sm" : kind == 2 ? "clock.memory" : "clock.other", out);
}

#define LONG(function, name) \
    int function(Device *device, unsigned long long *out) { return number(device->prefix, name, out); }
LONG(nvmlDeviceGetTotalEnergyConsumption, "energy")
LONG(nvmlDeviceGetCurrentClocksThrottleReasons, "throttle")

int nvmlDeviceGetTotalEccErrors(Device *device, int type, int counter, unsigned long long *out) {
    const char *names[] = {"ecc.corrected", "ecc.uncorrected", "ecc.corrected.ever", "ecc.uncorrected.ever"};
    return number(device->prefix, names[2 * counter + type], out);
}

#define RATE(function, name) \
    int function(Device *device, unsigned *out, unsigned *period) { \
        *period = 1000; \
        return small(device, name, out); \
    }
RATE(nvmlDeviceGetEncoderUtilization, "encoder")
RATE(nvmlDeviceGetDecoderUtilization, "decoder")

int nvmlDeviceGetUtilizationRates(Device *device, Rates *out) {
    int failed = small(device, "utilization", &out->gpu);
    return failed ? failed : small(device, "utilization.memory", &out->memory);
}

int nvmlDeviceGetMemoryInfo(Device *device, Memory1 *out) {
    int failed = number(device->prefix, "memory.total", &out->total);
    return failed ? failed : number(device->prefix, "memory.used", &out->used);
}

int nvmlDeviceGetMemoryInfo_v2(Device *device, Memory2 *out) {
    if (text("", "old")) return 13;
    int failed = number(device->prefix, "memory.total", &out->total);
    return failed ? failed : number(device->prefix, "memory.used", &out->used);
}

int nvmlDeviceGetRemappedRows(Device *device, unsigned *one, unsigned *two, unsigned *pending, unsigned *failed) {
    *two = *pending = *failed = 0;
    int result = small(device, "remapped.corrected", one);
    return result ? result : small(device, "remapped.uncorrected", two);
}

int nvmlDeviceGetMigMode(Device *device, unsigned *now, unsigned *pending) {
    int failed = small(device, "mig", now);
    *pending = *now;
    return failed;
}

int nvmlDeviceGetMigDeviceHandleByIndex(Device *device, unsigned index, Device **out) {
    if (index >= 8) return NOT_FOUND;
    Device *part = &parts[device - devices][index];
    snprintf(part->prefix, sizeof part->prefix, "%.16smig%u.", device->prefix, index);
    const char *value = text(part->prefix, "handle");
    if (value && failure(value)) return failure(value);
    if (!text(part->prefix, "uuid")) return NOT_FOUND;
    *out = part;
    return OK;
}

/* A list is "PID:BYTES PID:BYTES", or "-" for none. */
static int list(Device *device, const char *name, unsigned *count, Process *out) {
    const char *value = text(device->prefix, name);
    int failed = failure(value);
    if (failed) return failed;
    char copy[256], *rest = copy, *word;
    snprintf(copy, sizeof copy, "%s", strcmp(value, "-") ? value : "");
    unsigned found = 0, room = *count;
    for (; (word = strtok_r(rest, " ", &rest)); found++)
        if (found < room && out) {
            char *end;
            out[found].pid = (unsigned)strtoul(word, &end, 10);
            out[found].memory = *end == ':' ? strtoull(end + 1, NULL, 10) : ~0ULL;
        }
    *count = found;
    return found > room ? SMALL : OK;
}

#define LIST(function, name) \
    int function(Device *device, unsigned *count, Process *out) { return list(device, name, count, out); }
LIST(nvmlDeviceGetComputeRunningProcesses_v3, "processes")
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, "processes.mps")
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, "processes.graphics")

int nvmlDeviceGetFieldValues(Device *device, int count, FieldValue *values) {
    seconds++;
    const char *all = text(device->prefix, "fields");
    if (all && failure(all)) return failure(all);
    for (int i = 0; i < count; i++) {
        char name[32];
        int linked = values[i].scope && values[i].scope != ~0U;
        snprintf(name, sizeof name, linked ? "field.%u.%u" : "field.%u", values[i].field, values[i].scope);
        values[i].timestamp = seconds * 1000000;
        values[i].type = 3;
        values[i].result = number(device->prefix, name, &values[i].value.ull);
    }
    return OK;
}

int nvmlEventSetCreate(void **out) { *out = lines; return OK; }
int nvmlEventSetFree(void *events) { (void)events; return OK; }

int nvmlDeviceRegisterEvents(Device *device, unsigned long long types, void *events) {
    (void)types;
    (void)events;
    const char *value = exactly(device->prefix, "events");
    return value ? failure(value) : OK;
}

/* "xid 79 94" is one event each, once per version of the file. */
int nvmlEventSetWait_v2(void *events, Event *out, unsigned milliseconds) {
    (void)events;
    (void)milliseconds;
    for (int i = 0; i < DEVICES; i++) {
        const char *value = devices[i].prefix[0] ? exactly(devices[i].prefix, "xid") : NULL;
        if (!value) continue;
        if (failure(value)) return failure(value);
        char copy[256], *rest = copy, *word;
        snprintf(copy, sizeof copy, "%s", value);
        for (int place = 0; (word = strtok_r(rest, " ", &rest)); place++)
            if (place == xids_given[i]) {
                xids_given[i]++;
                out->device = &devices[i];
                out->type = 8;
                out->data = strtoull(word, NULL, 10);
                return OK;
            }
    }
    return TIMEOUT;
}

int nvmlGpmQueryDeviceSupport(Device *device, unsigned *support) {
    const char *value = text(device->prefix, "gpm");
    support[1] = value != NULL;
    return value ? failure(value) : OK;
}

int nvmlGpmSampleAlloc(Sample **out) { *out = calloc(1, sizeof(Sample)); return *out ? OK : UNKNOWN; }
int nvmlGpmSampleFree(Sample *sample) { free(sample); return OK; }

int nvmlGpmSampleGet(Device *device, Sample *sample) { sample->device = device; return OK; }

int nvmlGpmMigSampleGet(Device *device, unsigned instance, Sample *sample) {
    for (unsigned i = 0; i < 8; i++) {
        unsigned own;
        Device *part = &parts[device - devices][i];
        if (part->prefix[0] && small(part, "instance", &own) == OK && own == instance) {
            sample->device = part;
            return OK;
        }
    }
    return NOT_FOUND;
}

int nvmlGpmMetricsGet(Metrics *asked) {
    if (!asked->one->device || asked->one->device != asked->two->device) return INVALID;
    for (unsigned i = 0; i < asked->count; i++) {
        char name[32];
        snprintf(name, sizeof name, "gpm.%u", asked->metrics[i].metric);
        const char *value = text(asked->two->device->prefix, name);
        asked->metrics[i].result = failure(value);
        if (!failure(value)) asked->metrics[i].value = strtod(value, NULL);
    }
    return OK;
}
