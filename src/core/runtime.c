#include "core/runtime.h"

#include <stdio.h>
#include <string.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "core/completion.h"
#include "core/recording.h"
#include "core/stranded.h"

/* How long the exit of a process waits for the background thread, and so does the end of a world
 * whose backend may hang. */
#define EXIT_NS DT_NS_PER_S

static dtrain_status_t no_memory(void)
{
    return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for the runtime");
}

static void operations_done(void *context, dt_operation_t *const *operations, int n)
{
    dt_complete_well(context, operations, n);
}

static void operation_failed(void *context, dt_operation_t *operation, dtrain_status_t status,
                             const char *text)
{
    dt_complete(context, operation, status, text);
}

/* Who waits for that may be asleep. */
static void operations_enqueued(void *context, dt_operation_t *const *operations, int n)
{
    (void)operations;
    (void)n;
    dt_baton_tell(context);
}

static void wake_engine(void *context)
{
    dt_runtime_t *runtime = context;
    runtime->world.control->ops->wake(runtime->world.control);
}

static size_t describe_silent(void *context, char *text, size_t cap)
{
    return dt_detector_describe_silent(context, text, cap);
}

static dtrain_status_t start_detector(dt_runtime_t *runtime)
{
    const dt_detector_hooks_t hooks = {.notify = wake_engine,
                                       .describe = dt_recording_describe,
                                       .answer = dt_recording_answer,
                                       .sees_node = runtime->world.boards.at != NULL,
                                       .answered = dt_recording_answered,
                                       .overdue = dt_strand,
                                       .context = runtime};
    dt_detector_t *detector = runtime->world.detector;
    if (!detector)
        return DTRAIN_OK;
    if (runtime->negotiator)
        dt_negotiator_ask_silent(runtime->negotiator, describe_silent, detector);
    return dt_detector_start(detector, &hooks);
}

dtrain_status_t dt_runtime_create(dt_world_t *world, const dt_config_t *config,
                                  const dt_clock_t *clock, dt_runtime_t **runtime_out)
{
    dt_fault_point(DT_FAULT_INIT_START);
    dt_runtime_t *runtime = dt_calloc(1, sizeof *runtime);
    if (!runtime) {
        dt_world_close(world, 0);
        return no_memory();
    }
    runtime->config = *config;
    runtime->world = *world;
    runtime->clock = clock ? *clock : dt_clock_system();
    runtime->check_ns = DT_NEVER;
    const dt_topology_t *topology = &runtime->world.topology;
    dt_intake_init(&runtime->intake);
    dt_gpu_init(&runtime->gpu, &runtime->config, topology);
    dt_user_memory_init(&runtime->memory, runtime->world.backend, &runtime->gpu);
    dt_plan_policy_t policy = {.threshold = config->fusion_threshold,
                               .tensor_limit = config->fusion_tensor_limit};
    dtrain_status_t status =
        dt_psets_init(&runtime->psets, &runtime->world, &policy, dt_recording_started,
                      operations_done, operation_failed, runtime);
    if (status == DTRAIN_OK)
        dt_psets_use_gpu(&runtime->psets, &runtime->gpu, operations_enqueued);
    dt_baton_init(runtime);
    runtime->handles = dt_handle_table_create();
    if (status == DTRAIN_OK)
        status = dt_recording_open(runtime);
    if (status == DTRAIN_OK)
        status = dt_dump_init(&runtime->dump, topology->size);
    if (status == DTRAIN_OK && topology->rank == 0)
        runtime->negotiator = dt_negotiator_create(topology, &runtime->psets);
    if (status == DTRAIN_OK && topology->rank == 0)
        status = dt_stall_init(&runtime->stall, topology->size);
    if (status == DTRAIN_OK && (!runtime->handles || (topology->rank == 0 && !runtime->negotiator)))
        status = no_memory();
    if (status == DTRAIN_OK)
        status = dt_psets_configure(&runtime->psets, config->process_sets);
    /* All ranks have this setting, and leave alike. */
    if (status == DTRAIN_ERR_CONFIG)
        atomic_store(&runtime->phase, DT_PHASE_FAREWELL);
    if (status == DTRAIN_OK && dt_baton_start(runtime))
        status = no_memory();
    if (status == DTRAIN_OK)
        status = start_detector(runtime);
    if (status != DTRAIN_OK) {
        dt_runtime_destroy(runtime);
        return status;
    }
    *runtime_out = runtime;
    return DTRAIN_OK;
}

int dt_runtime_is_stranded(dt_runtime_t *runtime)
{
    return dt_is_stranded(runtime);
}

/* Without a word: for the others this rank is lost. A thread that is stuck ends with the process.
 */
void dt_runtime_stop_thread(dt_runtime_t *runtime)
{
    if (dt_baton_stop(runtime, EXIT_NS) != 0)
        dt_log(DTRAIN_LOG_WARN, "core", "the background thread is stuck in a call");
    if (runtime->world.detector)
        dt_detector_stop(runtime->world.detector);
}

/* Who leaves a world that has not ended, as after a failed init, is lost for the others. */
static void leave_detector(dt_runtime_t *runtime)
{
    int phase = atomic_load(&runtime->phase);
    if (runtime->world.detector && phase != DT_PHASE_RUNNING)
        dt_detector_leave(runtime->world.detector, phase == DT_PHASE_FAREWELL);
}

/* A thread is inside, and may come back: what it could touch stays. */
static void leave_stuck(dt_runtime_t *runtime)
{
    if (runtime->world.give_up)
        runtime->world.give_up(runtime->world.context);
    if (runtime->world.detector)
        dt_detector_leave(runtime->world.detector,
                          atomic_load(&runtime->phase) == DT_PHASE_FAREWELL);
}

/* By now no thread is on its way out of a blocking call, with a handle that is its own. */
static void report_handles(dt_runtime_t *runtime)
{
    int count = 0;
    if (atomic_load(&runtime->wants_bye))
        count = dt_handle_count(runtime->handles) - atomic_load(&runtime->num_kept);
    if (count > 0)
        dt_log(DTRAIN_LOG_WARN, "core", "%d handle(s) were not released before dtrain_shutdown",
               count);
}

void dt_runtime_destroy(dt_runtime_t *runtime)
{
    int64_t limit_ns = runtime->world.may_hang ? EXIT_NS : DT_NEVER;
    if (dt_is_stranded(runtime) || dt_baton_stop(runtime, limit_ns) != 0) {
        leave_stuck(runtime);
        return;
    }
    report_handles(runtime);
    dt_fault_point(DT_FAULT_SHUTDOWN_LEAVE);
    int is_clean = !runtime->is_unclean && atomic_load(&runtime->phase) == DT_PHASE_FAREWELL;
    dt_psets_abandon(&runtime->psets);
    leave_detector(runtime);
    dt_psets_leave(&runtime->psets, is_clean);
    dt_world_close(&runtime->world, is_clean);
    /* Until here peers may have written to what was given up. */
    dt_psets_free(&runtime->psets);
    dt_user_memory_free_all(&runtime->memory);
    dt_negotiator_free(runtime->negotiator);
    dt_intake_free(&runtime->intake);
    dt_id_table_free(&runtime->by_id);
    dt_handle_table_free(runtime->handles);
    dt_gpu_close(&runtime->gpu);
    dt_buffer_free(&runtime->message);
    dt_buffer_free(&runtime->part);
    dt_stall_free(&runtime->stall);
    dt_dump_free(&runtime->dump);
    dt_recording_close(runtime);
    dt_free(runtime->abort_text);
    dt_free(runtime->end_text);
    dt_baton_free(runtime);
    dt_free(runtime);
}

static int has_ended(void *argument)
{
    dt_runtime_t *runtime = argument;
    return atomic_load(&runtime->phase) != DT_PHASE_RUNNING;
}

/* All ranks said farewell, and what was agreed before is carried out. */
static int may_leave(void *argument)
{
    dt_runtime_t *runtime = argument;
    int phase = atomic_load(&runtime->phase);
    return phase == DT_PHASE_GONE ||
           (phase == DT_PHASE_FAREWELL && atomic_load(&runtime->num_pending) == 0);
}

dtrain_status_t dt_runtime_abort(dt_runtime_t *runtime, int code, const char *why)
{
    char text[DT_ERROR_MAX];
    snprintf(text, sizeof text, "rank %d called dtrain_abort with code %d%s%.800s",
             runtime->world.topology.rank, code, why ? ": " : "", why ? why : "");
    int expected = 0;
    if (atomic_compare_exchange_strong(&runtime->wants_abort, &expected, -1)) {
        runtime->abort_text = dt_strdup(text);
        atomic_store(&runtime->wants_abort, 1);
    }
    dt_baton_notify(runtime);
    dt_baton_help(runtime, has_ended, runtime, DT_NEVER);
    return DTRAIN_OK;
}

dtrain_status_t dt_runtime_shutdown(dt_runtime_t *runtime)
{
    dtrain_status_t status = dt_runtime_may_block(runtime, "dtrain_shutdown");
    if (status != DTRAIN_OK)
        return status;
    dt_fault_point(DT_FAULT_SHUTDOWN_BYE);
    dt_intake_close(&runtime->intake, DTRAIN_ERR_SHUT_DOWN, "this rank has called dtrain_shutdown");
    atomic_store(&runtime->wants_bye, 1);
    dt_baton_notify(runtime);
    dt_baton_help(runtime, may_leave, runtime, DT_NEVER);
    if (dt_is_stranded(runtime))
        return dt_stranded_error(runtime);
    if (atomic_load_explicit(&runtime->phase, memory_order_acquire) == DT_PHASE_GONE)
        return dt_fail(runtime->end_status, "%s", runtime->end_text ? runtime->end_text : "");
    return DTRAIN_OK;
}
