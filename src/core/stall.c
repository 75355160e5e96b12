#include "core/stall.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "core/pset_key.h"
#include "core/recording.h"
#include "core/runtime.h"
#include "observe/flight_text.h"

/* In a larger world only ranks that are waited for are shown, and no more than so many. */
#define RANKS_SHOWN_MAX 16

dtrain_status_t dt_stall_init(dt_stall_t *stall, int size)
{
    stall->is_shown = dt_calloc((size_t)size, sizeof *stall->is_shown);
    if (!stall->is_shown || dt_rank_set_init(&stall->missing, size))
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for the stall report");
    return DTRAIN_OK;
}

void dt_stall_free(dt_stall_t *stall)
{
    dt_free((void *)stall->is_shown);
    dt_rank_set_free(&stall->missing);
}

/* ---- Positions ---------------------------------------------------------------------------- */

static void log_rank(dt_runtime_t *runtime, int rank, const char *position)
{
    char who[128];
    dt_topology_describe(&runtime->world.topology, rank, who, sizeof who);
    dt_log(DTRAIN_LOG_WARN, "core", "%s: %s", who, position);
}

/* 0 where its board cannot be seen from here. */
static int describe(dt_runtime_t *runtime, int rank, char *text, size_t cap)
{
    dt_flight_position_t position;
    const dt_flight_board_t *board = dt_recording_board(runtime, rank);
    if (!board)
        return 0;
    dt_flight_read_position(board, &position);
    dt_flight_describe_position(&position, runtime->clock.now(runtime->clock.context), dt_kind_name,
                                text, cap);
    return 1;
}

static void log_silent(dt_runtime_t *runtime)
{
    char text[DT_ERROR_MAX];
    dt_detector_t *detector = runtime->world.detector;
    if (detector && dt_detector_describe_silent(detector, text, sizeof text) > 0)
        dt_log(DTRAIN_LOG_WARN, "core", "%s", text);
}

static void report_positions(dt_runtime_t *runtime)
{
    dt_stall_t *stall = &runtime->stall;
    int size = runtime->world.topology.size;
    int num_shown = 0, num_unseen = 0;
    log_silent(runtime);
    for (int rank = 0; rank < size; rank++) {
        char text[DT_ERROR_MAX];
        int is_wanted = size <= RANKS_SHOWN_MAX || dt_rank_set_has(&stall->missing, rank);
        int is_shown = is_wanted && num_shown < RANKS_SHOWN_MAX;
        atomic_store(&stall->is_shown[rank], (uint8_t)is_shown);
        num_shown += is_shown;
        if (is_shown && describe(runtime, rank, text, sizeof text))
            log_rank(runtime, rank, text);
        else
            num_unseen += is_shown;
    }
    if (num_unseen > 0 && runtime->world.detector)
        dt_detector_ask(runtime->world.detector, DT_QUESTION_POSITION, &stall->question);
}

void dt_stall_answer(dt_runtime_t *runtime, int rank, dt_detector_emit_fn_t emit, void *context)
{
    char text[DT_DETECTOR_LINE_MAX + 1];
    if (describe(runtime, rank, text, sizeof text))
        emit(context, text);
}

void dt_stall_answered(dt_runtime_t *runtime, int rank, uint32_t question, const char *line)
{
    dt_stall_t *stall = &runtime->stall;
    if (line && question == atomic_load(&stall->question) && atomic_load(&stall->is_shown[rank]))
        log_rank(runtime, rank, line);
}

/* ---- Data that does not move ---------------------------------------------------------------- */

/* The first operation that is agreed on and not done, and how many there are. */
static const dt_operation_t *find_running(const dt_runtime_t *runtime, int *count)
{
    const dt_operation_t *first = NULL;
    *count = 0;
    for (const dt_operation_t *operation = runtime->pending.first; operation;
         operation = operation->next) {
        if (!operation->is_agreed || operation->is_bystander)
            continue;
        if (!first)
            first = operation;
        ++*count;
    }
    return first;
}

/* When an operation was last agreed on, begun or finished. */
static int64_t last_moved(const dt_runtime_t *runtime)
{
    dt_flight_position_t position;
    int64_t last_ns = 0;
    dt_flight_read_position(runtime->flight.board, &position);
    for (int stage = DT_FLIGHT_AGREED; stage < DT_FLIGHT_STAGES; stage++) {
        if (position.times_ns[stage] > last_ns)
            last_ns = position.times_ns[stage];
    }
    return last_ns;
}

static void warn_running(const dt_runtime_t *runtime, const dt_operation_t *first, int count,
                         int64_t age_ns)
{
    char name[DT_KEY_TEXT_MAX], others[48] = "";
    const char *key = dt_operation_key(first);
    if (count > 1)
        snprintf(others, sizeof others, " and %d more operations", count - 1);
    dt_log(DTRAIN_LOG_WARN, "core",
           "%s %s%s: all ranks have submitted it, and nothing has come further on rank %d for %.1f "
           "s",
           dt_kind_name(first->signature.kind),
           dt_pset_key_describe(key, strlen(key), name, sizeof name), others,
           runtime->world.topology.rank, (double)age_ns / (double)DT_NS_PER_S);
}

/* *warned is set to 1 when it has warned. */
static int64_t check_running(dt_runtime_t *runtime, int64_t now_ns, int *warned)
{
    int count;
    dt_stall_t *stall = &runtime->stall;
    int64_t after_ns = runtime->config.stall_warning_ns;
    const dt_operation_t *first = find_running(runtime, &count);
    if (!first || after_ns == DT_NEVER) {
        stall->warn_ns = 0;
        return DT_NEVER;
    }
    int64_t age_ns = now_ns - last_moved(runtime);
    if (age_ns < after_ns) {
        stall->warn_ns = 0;
        return now_ns - age_ns + after_ns;
    }
    if (now_ns >= stall->warn_ns) {
        warn_running(runtime, first, count, age_ns);
        stall->warn_ns = now_ns + age_ns;
        *warned = 1;
    }
    return stall->warn_ns;
}

int64_t dt_stall_check(dt_runtime_t *runtime, int64_t now_ns)
{
    int warned = 0;
    dt_stall_t *stall = &runtime->stall;
    dt_rank_set_clear(&stall->missing);
    int64_t next = dt_negotiator_warn(runtime->negotiator, runtime->config.stall_warning_ns, now_ns,
                                      &stall->missing);
    int64_t other = check_running(runtime, now_ns, &warned);
    if (warned || stall->missing.count > 0)
        report_positions(runtime);
    return other < next ? other : next;
}
