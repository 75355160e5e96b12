#include "base/config_table.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/text.h"

#define KIB INT64_C(1024)
#define MIB (KIB * 1024)
#define GIB (MIB * 1024)
#define MAX_BYTES (64 * GIB)

#define FIELD(field)                                            \
    .name = #field, .offset = offsetof(dtrain_config_t, field), \
    .size = sizeof((dtrain_config_t *)0)->field

#define INTERNAL(field)                              \
    .internal_offset = offsetof(dt_config_t, field), \
    .internal_size = sizeof((dt_config_t *)0)->field

static const dt_choice_t log_levels[] = {
    {"off", DTRAIN_LOG_OFF},
    {"error", DTRAIN_LOG_ERROR},
    {"warn", DTRAIN_LOG_WARN},
    {"info", DTRAIN_LOG_INFO},
    {"debug", DTRAIN_LOG_DEBUG},
    {"trace", DTRAIN_LOG_TRACE},
    {NULL, 0},
};

static const dt_choice_t mpi_threads[] = {
    {"multiple", DTRAIN_MPI_THREADS_MULTIPLE},
    {"serialized", DTRAIN_MPI_THREADS_SERIALIZED},
    {NULL, 0},
};

static const dt_choice_t shared_memory[] = {
    {"on", DTRAIN_SHARED_MEMORY_ON}, {"off", DTRAIN_SHARED_MEMORY_OFF}, {NULL, 0}};

static const dt_choice_t join_divisors[] = {
    {"present", DTRAIN_JOIN_DIVISOR_PRESENT}, {"all", DTRAIN_JOIN_DIVISOR_ALL}, {NULL, 0}};

static const dt_choice_t gpus[] = {{"auto", DTRAIN_GPU_AUTO},
                                   {"staged", DTRAIN_GPU_STAGED},
                                   {"shared", DTRAIN_GPU_SHARED},
                                   {"off", DTRAIN_GPU_OFF},
                                   {NULL, 0}};

static const dt_choice_t isas[] = {{"auto", 0},   {"scalar", 0}, {"avx2", 0},
                                   {"avx512", 0}, {"neon", 0},   {NULL, 0}};

static const dt_choice_t backends[] = {{"auto", 0}, {"mpi", 0}, {"self", 0}, {NULL, 0}};

static const dt_choice_t flight_signals[] = {{"off", 0},  {"hup", 0}, {"usr1", 0},  {"usr2", 0},
                                             {"quit", 0}, {"urg", 0}, {"winch", 0}, {NULL, 0}};

const dt_setting_t dt_settings[DT_SETTING_COUNT] = {
    {FIELD(log_level), INTERNAL(log_level), .kind = DT_SETTING_CHOICE, .choices = log_levels,
     .default_internal = DTRAIN_LOG_WARN, .default_text = "warn",
     .help = "Which log lines are written: those of this level and of the ones before it."},
    {FIELD(fusion_threshold), INTERNAL(fusion_threshold), .kind = DT_SETTING_BYTES, .is_shared = 1,
     .may_be_off = 1, .min = 1, .max = MAX_BYTES, .default_internal = 16 * MIB, .off_internal = 0,
     .default_text = "16 MiB",
     .help = "The most that a fused bucket holds. With `off` every tensor travels alone."},
    {FIELD(fusion_tensor_limit), INTERNAL(fusion_tensor_limit), .kind = DT_SETTING_BYTES,
     .is_shared = 1, .min = 1, .max = MAX_BYTES, .default_internal = 128 * KIB,
     .default_text = "128 KiB",
     .help = "The largest tensor that is copied into a bucket; larger ones are reduced where "
             "they lie."},
    {FIELD(timeout_ms), INTERNAL(timeout_ns), .kind = DT_SETTING_DURATION, .is_shared = 1,
     .may_be_off = 1, .unit_ns = DT_NS_PER_MS, .min = 1, .max = INT32_MAX,
     .default_internal = 60 * DT_NS_PER_S, .off_internal = DT_NEVER, .default_text = "60 s",
     .help = "How long an operation may take, from the call that submits it, before it fails "
             "with a timeout."},
    {FIELD(stall_warning_ms), INTERNAL(stall_warning_ns), .kind = DT_SETTING_DURATION,
     .is_shared = 1, .may_be_off = 1, .unit_ns = DT_NS_PER_MS, .min = 1, .max = INT32_MAX,
     .default_internal = 2 * DT_NS_PER_S, .off_internal = DT_NEVER, .default_text = "2 s",
     .help = "After how long a warning names the tensor that waits and the ranks that have not "
             "submitted it."},
    {FIELD(init_timeout_ms), INTERNAL(init_timeout_ns), .kind = DT_SETTING_DURATION,
     .unit_ns = DT_NS_PER_MS, .min = 1, .max = INT32_MAX, .default_internal = 60 * DT_NS_PER_S,
     .default_text = "60 s",
     .help = "How long `dtrain_init` waits for the other ranks before it fails with a timeout."},
    {FIELD(spin_us), INTERNAL(spin_ns), .kind = DT_SETTING_DURATION, .may_be_off = 1,
     .unit_ns = DT_NS_PER_US, .min = 1, .max = 1000000, .default_internal = -1, .off_internal = 0,
     .default_text = "auto", .auto_word = "auto",
     .help = "How long a thread that waits stays busy before it sleeps. `auto` chooses by the "
             "cores and ranks of the node."},
    {FIELD(mpi_threads), INTERNAL(mpi_threads), .kind = DT_SETTING_CHOICE, .choices = mpi_threads,
     .default_internal = DTRAIN_MPI_THREADS_MULTIPLE, .default_text = "multiple",
     .help = "How a program that initialised MPI itself goes on using it: at any time, or not "
             "while libdtrain is initialised."},
    {FIELD(backend), INTERNAL(backend), .kind = DT_SETTING_WORD, .choices = backends,
     .default_text = "auto",
     .help = "Who makes the world: `mpi`, or `self` for a world of one. `auto` takes MPI when a "
             "launcher started the process or the program has initialised MPI."},
    {FIELD(network_interface), INTERNAL(network_interface), .kind = DT_SETTING_TEXT,
     .default_text = "any",
     .help = "The network interface of connections between nodes, as `eth0`."},
    {FIELD(shared_memory), INTERNAL(shared_memory), .kind = DT_SETTING_CHOICE, .is_shared = 1,
     .choices = shared_memory, .default_internal = DTRAIN_SHARED_MEMORY_ON, .default_text = "on",
     .help = "Whether the ranks of a node share memory. With `off` MPI carries all data, and "
             "sockets all control messages."},
    {FIELD(isa), INTERNAL(isa), .kind = DT_SETTING_WORD, .choices = isas, .default_text = "auto",
     .help = "The best instruction set that reductions and optimizers may use, of those that the "
             "CPU has. The results are the same bits with all."},
    {FIELD(heartbeat_ms), INTERNAL(heartbeat_ns), .kind = DT_SETTING_DURATION, .is_shared = 1,
     .unit_ns = DT_NS_PER_MS, .min = 10, .max = 60000, .default_internal = 500 * DT_NS_PER_MS,
     .default_text = "500 ms",
     .help = "How often ranks show each other that they run. One that has not for more than two "
             "of these counts as stopped or stuck, and texts of deadlines name it."},
    {FIELD(link_timeout_ms), INTERNAL(link_timeout_ns), .kind = DT_SETTING_DURATION, .is_shared = 1,
     .unit_ns = DT_NS_PER_MS, .min = 100, .max = 600000, .default_internal = 1200 * DT_NS_PER_MS,
     .default_text = "1200 ms",
     .help = "How long a node may leave what it is sent unacknowledged before its ranks are lost. "
             "Together with heartbeat_ms, the most that it takes to notice that a node or link "
             "is gone."},
    {FIELD(join_divisor), INTERNAL(join_divisor), .kind = DT_SETTING_CHOICE, .is_shared = 1,
     .choices = join_divisors, .default_internal = DTRAIN_JOIN_DIVISOR_PRESENT,
     .default_text = "present",
     .help = "What an average divides by while ranks have joined: the ranks that took part, so "
             "that it is the average of what they gave, or all ranks of the process set."},
    {FIELD(flight_dir), INTERNAL(flight_dir), .kind = DT_SETTING_TEXT, .default_text = "none",
     .help =
         "The directory into which the last operations of all ranks are written, a file a node, "
         "when the world ends with an error."},
    {FIELD(flight_signal), INTERNAL(flight_signal), .kind = DT_SETTING_WORD,
     .choices = flight_signals, .default_text = "off",
     .help = "The signal on which a rank writes the last operations of all ranks into a file in "
             "flight_dir, or else in its working directory. The program's own handler, if it had "
             "one before `dtrain_init`, is called too."},
    {FIELD(process_sets), INTERNAL(process_sets), .kind = DT_SETTING_TEXT, .is_shared = 1,
     .default_text = "none",
     .help = "Process sets that exist from the start, with the ids 1, 2, …: ranks and runs of "
             "ranks, as `0,1;2-5`."},
    {FIELD(gpu), INTERNAL(gpu), .kind = DT_SETTING_CHOICE, .is_shared = 1, .choices = gpus,
     .default_internal = DTRAIN_GPU_AUTO, .default_text = "auto",
     .help = "How tensors on GPUs travel: over NCCL where there is one (`auto`), over NCCL though "
             "several ranks use one GPU (`shared`), through host memory (`staged`), or not at all "
             "(`off`)."},
};

const dt_setting_t *dt_setting_find(const char *name)
{
    for (int i = 0; i < DT_SETTING_COUNT; i++) {
        if (strcmp(dt_settings[i].name, name) == 0)
            return &dt_settings[i];
    }
    return NULL;
}

const dt_setting_t *dt_setting_nearest(const char *name)
{
    const dt_setting_t *nearest = &dt_settings[0];
    for (int i = 1; i < DT_SETTING_COUNT; i++) {
        if (dt_text_distance(dt_settings[i].name, name) < dt_text_distance(nearest->name, name))
            nearest = &dt_settings[i];
    }
    return nearest;
}

const char *dt_setting_variable(const dt_setting_t *setting, char variable[DT_VARIABLE_MAX])
{
    snprintf(variable, DT_VARIABLE_MAX, "DTRAIN_%s", setting->name);
    for (char *c = variable; *c; c++)
        *c = (char)toupper((unsigned char)*c);
    return variable;
}

int64_t dt_setting_load(const void *base, size_t offset, size_t size)
{
    int32_t narrow;
    int64_t wide;
    const char *at = (const char *)base + offset;
    if (size == sizeof wide) {
        memcpy(&wide, at, sizeof wide);
        return wide;
    }
    memcpy(&narrow, at, sizeof narrow);
    return narrow;
}

void dt_setting_store(void *base, size_t offset, size_t size, int64_t value)
{
    int32_t narrow = (int32_t)value;
    char *at = (char *)base + offset;
    if (size == sizeof value)
        memcpy(at, &value, sizeof value);
    else
        memcpy(at, &narrow, sizeof narrow);
}
