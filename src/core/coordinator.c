#include "core/coordinator.h"

#include <stdio.h>
#include <string.h>

#include "base/fault.h"
#include "base/log.h"
#include "base/status.h"
#include "core/completion.h"
#include "core/pset_key.h"
#include "core/recording.h"
#include "core/report.h"
#include "core/verdict.h"
#include "core/wire.h"

/* Events taken in one step, so that a flood does not keep the rest waiting. */
#define EVENTS_PER_STEP 64

/* After data moved, the backend is called again so often (at first, later), and for so long: then
 * whoever waits for something has met its deadline. */
#define LINGER_SOON_NS DT_NS_PER_MS
#define LINGER_LATER_NS (20 * DT_NS_PER_MS)
#define LINGER_FIRST_NS DT_NS_PER_S
#define LINGER_LAST_NS (60 * DT_NS_PER_S)

/* How long rank 0 has to answer when an operation's deadline has passed. */
#define ANSWER_NS (2 * DT_NS_PER_S)

/* How long the detector has to say more about a rank whose control connection has ended. */
#define DETECTOR_NS (60 * DT_NS_PER_MS)
/* Where data failed to move it is not known which rank is behind it, if any is: worth more time. */
#define EXPLAIN_NS DT_NS_PER_S

/* Whom an end concerns, when others have told it: they know. */
#define NOBODY (-1)

static int is_root(const dt_runtime_t *runtime)
{
    return runtime->world.topology.rank == 0;
}

static int phase(dt_runtime_t *runtime)
{
    return atomic_load_explicit(&runtime->phase, memory_order_relaxed);
}

static int has_detector_news(const dt_runtime_t *runtime)
{
    return runtime->world.detector && dt_detector_has_news(runtime->world.detector);
}

int dt_coord_has_wish(dt_runtime_t *runtime)
{
    if (has_detector_news(runtime) && phase(runtime) != DT_PHASE_GONE)
        return 1;
    if (phase(runtime) != DT_PHASE_RUNNING)
        return 0;
    return atomic_load(&runtime->wants_abort) == 1 ||
           (atomic_load(&runtime->wants_bye) && !atomic_load(&runtime->has_said_bye));
}

/* The root takes in a report, and will look in time whether what it is about has stalled. */
static dtrain_status_t negotiate(dt_runtime_t *runtime, int rank, const dt_reader_t *report,
                                 int64_t now_ns)
{
    int64_t stall_ns = runtime->config.stall_warning_ns;
    if (stall_ns != DT_NEVER && now_ns + stall_ns < runtime->check_ns)
        runtime->check_ns = now_ns + stall_ns;
    return dt_negotiator_report(runtime->negotiator, rank, report->at,
                                (size_t)(report->end - report->at), now_ns);
}

/* Sends the message that was written to rank 0, or takes it in where this is rank 0. */
static dtrain_status_t send_to_root(dt_runtime_t *runtime, int64_t now_ns)
{
    dt_buffer_t *message = &runtime->message;
    if (message->failed)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for a control message");
    if (is_root(runtime)) {
        dt_reader_t reader = dt_reader_make(message->data, message->length);
        dt_get_header(&reader);
        return negotiate(runtime, 0, &reader, now_ns);
    }
    dt_control_t *control = runtime->world.control;
    dtrain_status_t status = control->ops->send(control, 0, message->data, message->length);
    /* A lost peer is told by receive. */
    return status == DTRAIN_ERR_RANK_LOST ? DTRAIN_OK : status;
}

static int is_on_world(const dt_operation_t *operation)
{
    return operation->set && operation->set->id == DTRAIN_PSET_WORLD;
}

static dtrain_status_t take_submissions(dt_runtime_t *runtime, int64_t now_ns, int *moved)
{
    dt_operation_t *last = runtime->pending.last;
    int count = dt_intake_take(&runtime->intake, &runtime->pending);
    if (count == 0)
        return DTRAIN_OK;
    *moved = 1;
    atomic_fetch_add(&runtime->num_pending, count);
    dt_operation_t *first = last ? last->next : runtime->pending.first;
    for (dt_operation_t *operation = first; operation; operation = operation->next) {
        operation->submitted_ns = now_ns;
        dt_recording_submitted(runtime, operation);
        operation->deadline_ns =
            operation->timeout_ns == DT_NEVER ? DT_NEVER : now_ns + operation->timeout_ns;
        if (operation->deadline_ns < runtime->check_ns)
            runtime->check_ns = operation->deadline_ns;
        if (dt_id_table_set(&runtime->by_id, operation))
            return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for an operation's id");
        if (is_on_world(operation))
            dt_executor_post(&operation->set->executor, operation);
    }
    dt_report_put(&runtime->message, first);
    dt_fault_point(DT_FAULT_NEGOTIATE);
    return send_to_root(runtime, now_ns);
}

/* Sends a message of the root's to every other rank. */
static dtrain_status_t send_to_all(dt_runtime_t *runtime)
{
    dt_control_t *control = runtime->world.control;
    if (runtime->message.failed)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for a control message");
    for (int rank = 1; rank < runtime->world.topology.size; rank++) {
        dtrain_status_t status =
            control->ops->send(control, rank, runtime->message.data, runtime->message.length);
        if (status != DTRAIN_OK && status != DTRAIN_ERR_RANK_LOST)
            return status;
    }
    return DTRAIN_OK;
}

/* Tells the others by the control, which may be faster than the detectors. */
static void tell_end(dt_runtime_t *runtime, dtrain_status_t status, const char *text, int about)
{
    if (!runtime->world.control || (!is_root(runtime) && about == NOBODY))
        return;
    dt_buffer_clear(&runtime->message);
    if (is_root(runtime)) {
        dt_put_end(&runtime->message, DT_MESSAGE_GONE, status, text);
        (void)send_to_all(runtime);
    } else {
        dt_put_end(&runtime->message, DT_MESSAGE_ABORT, status, text);
        (void)send_to_root(runtime, 0);
    }
}

/* Ends the world on this rank, and tells the others when it is this rank that found out: the end
 * then concerns the rank `about`, else NOBODY. */
static void end_world(dt_runtime_t *runtime, dtrain_status_t status, const char *text, int about)
{
    if (phase(runtime) == DT_PHASE_GONE)
        return;
    dt_complete_all(runtime, status, text);
    if (runtime->world.detector)
        dt_detector_tell(runtime->world.detector, about, status, text);
    dt_log(status == DTRAIN_ERR_ABORTED ? DTRAIN_LOG_INFO : DTRAIN_LOG_ERROR, "core", "%s", text);
    tell_end(runtime, status, text, about);
    dt_dump_on_end(runtime, text);
}

static void end_own(dt_runtime_t *runtime, dtrain_status_t status, const char *text)
{
    end_world(runtime, status, text, runtime->world.topology.rank);
}

static void end_lost(dt_runtime_t *runtime, int rank)
{
    char who[128], last[256], text[512];
    dt_topology_describe(&runtime->world.topology, rank, who, sizeof who);
    dt_recording_describe(runtime, rank, last, sizeof last);
    snprintf(text, sizeof text, "%s is lost: it died, or left without dtrain_shutdown%s%s", who,
             last[0] ? "; it was last " : "", last);
    end_world(runtime, DTRAIN_ERR_RANK_LOST, text, rank);
}

/* A control connection has ended. The detector knows more, and mostly as soon: until it tells,
 * nothing is done that needs the rank, in MPI above all. */
static void take_lost(dt_runtime_t *runtime, int rank, int64_t now_ns)
{
    runtime->is_unclean = 1;
    if (!runtime->world.detector) {
        end_lost(runtime, rank);
    } else if (runtime->lost_ns == 0) {
        runtime->lost_rank = rank;
        runtime->lost_ns = now_ns + DETECTOR_NS;
    }
}

/* Data cannot move, most likely since a rank is lost. 1 when the detector is given its moment. */
static int take_failure(dt_runtime_t *runtime, dtrain_status_t status, const char *text,
                        int64_t now_ns)
{
    if (!runtime->world.detector ||
        (status != DTRAIN_ERR_COMMUNICATION && status != DTRAIN_ERR_RANK_LOST))
        return 0;
    if (runtime->lost_ns != 0)
        return 1;
    runtime->is_unclean = 1;
    runtime->lost_rank = NOBODY;
    runtime->lost_status = status;
    snprintf(runtime->lost_text, sizeof runtime->lost_text, "%s", text);
    runtime->lost_ns = now_ns + EXPLAIN_NS;
    return 1;
}

static dtrain_status_t take_end(dt_runtime_t *runtime, dt_reader_t *reader)
{
    int32_t status;
    const char *text;
    size_t length;
    if (dt_get_end(reader, &status, &text, &length))
        return dt_fail(DTRAIN_ERR_INTERNAL, "a malformed last message came");
    char copy[DT_ERROR_MAX];
    snprintf(copy, sizeof copy, "%.*s", (int)length, text);
    if (status == DTRAIN_ERR_RANK_LOST)
        runtime->is_unclean = 1;
    end_world(runtime, (dtrain_status_t)status, copy, NOBODY);
    return DTRAIN_OK;
}

static void farewell(dt_runtime_t *runtime)
{
    atomic_store(&runtime->phase, DT_PHASE_FAREWELL);
    dt_baton_tell(runtime);
}

static dtrain_status_t take_message(dt_runtime_t *runtime, const dt_control_message_t *message,
                                    int64_t now_ns)
{
    dt_reader_t reader = dt_reader_make(message->data, message->length);
    int type = dt_get_header(&reader);
    if (is_root(runtime) && type == DT_MESSAGE_REPORT)
        return negotiate(runtime, message->peer, &reader, now_ns);
    if (is_root(runtime) && type == DT_MESSAGE_BYE)
        return dt_negotiator_bye(runtime->negotiator, message->peer);
    if (!is_root(runtime) && (type == DT_MESSAGE_VERDICT || type == DT_MESSAGE_PART))
        return dt_verdict_apply(runtime, &reader, type == DT_MESSAGE_PART);
    if (!is_root(runtime) && type == DT_MESSAGE_FAREWELL) {
        farewell(runtime);
        return DTRAIN_OK;
    }
    if (type == (is_root(runtime) ? DT_MESSAGE_ABORT : DT_MESSAGE_GONE))
        return take_end(runtime, &reader);
    return dt_fail(DTRAIN_ERR_INTERNAL, "rank %d sent a message that is none (type %d)",
                   message->peer, type);
}

static dtrain_status_t take_events(dt_runtime_t *runtime, int64_t now_ns, int *moved)
{
    dt_control_t *control = runtime->world.control;
    dtrain_status_t status = DTRAIN_OK;
    for (int i = 0; control && i < EVENTS_PER_STEP && status == DTRAIN_OK; i++) {
        dt_control_message_t message = {0};
        dt_control_event_t event = control->ops->receive(control, &message);
        if (event == DT_CONTROL_NONE)
            break;
        *moved = 1;
        if (phase(runtime) == DT_PHASE_GONE)
            continue;
        if (event == DT_CONTROL_MESSAGE)
            status = take_message(runtime, &message, now_ns);
        else if (message.is_starved)
            status = dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no memory for a message of rank %d",
                             message.peer);
        else if (phase(runtime) == DT_PHASE_RUNNING)
            take_lost(runtime, message.peer, now_ns);
    }
    return status;
}

/* What was agreed before a rank was lost, and is here, still counts: a barrier that the rank has
 * passed is passed by all. */
static void take_detector_news(dt_runtime_t *runtime, int64_t now_ns)
{
    char text[DT_ERROR_MAX];
    int moved = 1;
    dtrain_status_t status = DTRAIN_OK;
    while (moved && status == DTRAIN_OK) {
        moved = 0;
        status = take_events(runtime, now_ns, &moved);
    }
    status = dt_detector_take_news(runtime->world.detector, text, sizeof text);
    if (status == DTRAIN_OK)
        return;
    if (status == DTRAIN_ERR_RANK_LOST)
        runtime->is_unclean = 1;
    end_own(runtime, status, text);
}

/* Sends every rank what of the verdict concerns it; rank 0 carries its part out. */
static dtrain_status_t tell_verdict(dt_runtime_t *runtime)
{
    dt_control_t *control = runtime->world.control;
    dt_buffer_t *whole = &runtime->message, *part = &runtime->part;
    if (whole->failed)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for a control message");
    for (int rank = runtime->world.topology.size - 1; rank >= 0; rank--) {
        const dt_buffer_t *own = whole;
        if (dt_negotiator_part(runtime->negotiator, rank, whole, part))
            own = part;
        if (own->failed)
            return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for a control message");
        if (own->length == 0)
            continue;
        if (rank == 0) {
            dt_reader_t reader = dt_reader_make(own->data, own->length);
            dt_get_header(&reader);
            return dt_verdict_apply(runtime, &reader, own == part);
        }
        dtrain_status_t status = control->ops->send(control, rank, own->data, own->length);
        if (status != DTRAIN_OK && status != DTRAIN_ERR_RANK_LOST)
            return status;
    }
    return DTRAIN_OK;
}

/* The root's turn: what was decided goes to all ranks that it concerns, itself included. */
static dtrain_status_t decide(dt_runtime_t *runtime, int *moved)
{
    /* With priorities no more is begun than keeps the data path busy, a bucket in the queue. */
    int64_t bucket = runtime->psets.policy.threshold > 0 ? runtime->psets.policy.threshold : 1;
    int64_t room = dt_psets_has_backlog(&runtime->psets) ? 0 : bucket;
    dt_buffer_clear(&runtime->message);
    if (dt_negotiator_verdict(runtime->negotiator, room, &runtime->message) > 0) {
        *moved = 1;
        return tell_verdict(runtime);
    }
    if (dt_negotiator_is_over(runtime->negotiator) && phase(runtime) == DT_PHASE_RUNNING) {
        *moved = 1;
        dt_buffer_clear(&runtime->message);
        dt_put_header(&runtime->message, DT_MESSAGE_FAREWELL);
        dtrain_status_t status = send_to_all(runtime);
        farewell(runtime);
        return status;
    }
    return DTRAIN_OK;
}

/* Operations that are still held back for their name: no other rank knows of them yet. */
static void end_held(dt_runtime_t *runtime)
{
    dt_operation_t *last = runtime->pending.last;
    atomic_fetch_add(&runtime->num_pending,
                     dt_intake_take_held(&runtime->intake, &runtime->pending));
    dt_operation_t *operation = last ? last->next : runtime->pending.first;
    while (operation) {
        dt_operation_t *next = operation->next;
        dt_complete(runtime, operation, DTRAIN_ERR_SHUT_DOWN,
                    "this rank has called dtrain_shutdown");
        operation = next;
    }
}

static dtrain_status_t say_bye(dt_runtime_t *runtime, int *moved)
{
    if (!atomic_load(&runtime->wants_bye) || atomic_load(&runtime->has_said_bye) ||
        atomic_load(&runtime->intake.num_queued) > 0)
        return DTRAIN_OK;
    *moved = 1;
    end_held(runtime);
    atomic_store(&runtime->has_said_bye, 1);
    dtrain_status_t status;
    if (is_root(runtime)) {
        status = dt_negotiator_bye(runtime->negotiator, 0);
    } else {
        dt_buffer_clear(&runtime->message);
        dt_put_header(&runtime->message, DT_MESSAGE_BYE);
        status = send_to_root(runtime, 0);
    }
    dt_fault_point(DT_FAULT_SHUTDOWN_WAIT);
    return status;
}

/* Appends which ranks are stopped, as far as is known. */
static void add_silent(const dt_runtime_t *runtime, char *text, size_t cap)
{
    char silent[DT_ERROR_MAX / 2];
    size_t length = strlen(text);
    if (runtime->world.detector &&
        dt_detector_describe_silent(runtime->world.detector, silent, sizeof silent) > 0)
        snprintf(text + length, cap - length, "; %s", silent);
}

/* An operation whose deadline has passed. 1 when rank 0 is to be told. */
static int expire(dt_runtime_t *runtime, dt_operation_t *operation, int64_t now_ns)
{
    char text[DT_ERROR_MAX];
    char what[DT_KEY_TEXT_MAX];
    const char *kind = dt_kind_name(operation->signature.kind);
    double seconds = (double)(now_ns - operation->submitted_ns) / (double)DT_NS_PER_S;
    if (!operation->is_agreed && !operation->is_withdrawn) {
        operation->is_withdrawn = 1;
        operation->deadline_ns = now_ns + ANSWER_NS;
        return 1;
    }
    const char *key = dt_operation_key(operation);
    dt_pset_key_describe(key, strlen(key), what, sizeof what);
    if (operation->is_agreed)
        snprintf(text, sizeof text,
                 "rank %d: %s %s did not finish within %.3g s although all ranks had "
                 "submitted it: a rank is stopped, or the network is stuck",
                 runtime->world.topology.rank, kind, what, seconds);
    else
        snprintf(text, sizeof text,
                 "rank %d: %s %s passed its deadline after %.3g s, and rank 0 does not "
                 "answer: it is stopped, or cannot be reached",
                 runtime->world.topology.rank, kind, what, seconds);
    add_silent(runtime, text, sizeof text);
    runtime->is_unclean = 1;
    end_own(runtime, DTRAIN_ERR_TIMEOUT, text);
    return 0;
}

/* Looks at all deadlines, and at what the root should warn about. */
static dtrain_status_t check(dt_runtime_t *runtime, int64_t now_ns, int *moved)
{
    dt_buffer_t *message = &runtime->message;
    size_t count_at = dt_report_put_withdrawals(message);
    uint32_t count = 0;
    runtime->check_ns = DT_NEVER;
    for (dt_operation_t *operation = runtime->pending.first; operation;
         operation = operation->next) {
        if (operation->deadline_ns <= now_ns && expire(runtime, operation, now_ns)) {
            double seconds = (double)(now_ns - operation->submitted_ns) / (double)DT_NS_PER_S;
            dt_put_f64(message, seconds);
            dt_put_text(message, operation->name->text, operation->name->length);
            count++;
        }
        if (phase(runtime) == DT_PHASE_GONE)
            return DTRAIN_OK; /* the list is empty, the message another one */
        if (operation->deadline_ns < runtime->check_ns)
            runtime->check_ns = operation->deadline_ns;
    }
    if (is_root(runtime)) {
        int64_t next = dt_stall_check(runtime, now_ns);
        if (next < runtime->check_ns)
            runtime->check_ns = next;
    }
    if (count == 0)
        return DTRAIN_OK;
    *moved = 1; /* the root has to decide */
    dt_patch_u32(message, count_at, count);
    return send_to_root(runtime, now_ns);
}

/* While nothing is to do: calls the backend when it is time, and says when it is the next time. */
static void linger(dt_runtime_t *runtime, int64_t now_ns)
{
    dt_backend_t *backend = runtime->world.backend;
    int64_t age_ns = now_ns - runtime->data_ns;
    if (!backend->ops->linger || runtime->data_ns == 0 || age_ns > LINGER_LAST_NS)
        return;
    if (now_ns >= runtime->linger_ns) {
        backend->ops->linger(backend);
        runtime->linger_ns = now_ns + (age_ns < LINGER_FIRST_NS ? LINGER_SOON_NS : LINGER_LATER_NS);
    }
    if (runtime->linger_ns < runtime->check_ns)
        runtime->check_ns = runtime->linger_ns;
}

static dtrain_status_t progress(dt_runtime_t *runtime, int64_t now_ns, int *moved)
{
    int has_data_moved = 0;
    dtrain_status_t status = dt_psets_progress(&runtime->psets, &has_data_moved);
    if (has_data_moved) {
        *moved = 1;
        runtime->data_ns = now_ns;
        runtime->linger_ns = now_ns + LINGER_SOON_NS;
    }
    return status;
}

/* A rank is lost, and the detector has a moment to say why. */
static dtrain_status_t await_detector(dt_runtime_t *runtime, int64_t now_ns, int *moved)
{
    dtrain_status_t status = take_events(runtime, now_ns, moved);
    if (now_ns >= runtime->lost_ns && runtime->lost_rank == NOBODY)
        end_own(runtime, runtime->lost_status, runtime->lost_text);
    else if (now_ns >= runtime->lost_ns)
        end_lost(runtime, runtime->lost_rank);
    else if (runtime->lost_ns < runtime->check_ns)
        runtime->check_ns = runtime->lost_ns;
    return status;
}

static dtrain_status_t run(dt_runtime_t *runtime, int64_t now_ns, int *moved)
{
    if (runtime->lost_ns != 0)
        return await_detector(runtime, now_ns, moved);
    *moved |= dt_complete_errands(runtime);
    dtrain_status_t status = take_submissions(runtime, now_ns, moved);
    if (status == DTRAIN_OK)
        status = say_bye(runtime, moved);
    if (status == DTRAIN_OK)
        status = take_events(runtime, now_ns, moved);
    if (status == DTRAIN_OK && runtime->lost_ns != 0)
        return DTRAIN_OK;
    if (status == DTRAIN_OK && is_root(runtime) && phase(runtime) != DT_PHASE_GONE)
        status = decide(runtime, moved);
    if (status == DTRAIN_OK && phase(runtime) != DT_PHASE_GONE)
        status = progress(runtime, now_ns, moved);
    if (status == DTRAIN_OK && phase(runtime) != DT_PHASE_GONE && now_ns >= runtime->check_ns)
        status = check(runtime, now_ns, moved);
    return status;
}

static dt_step_t step(dt_runtime_t *runtime)
{
    int moved = 0;
    int64_t now_ns = runtime->clock.now(runtime->clock.context);
    dt_flight_at(&runtime->flight, now_ns);
    if (atomic_load(&runtime->wants_abort) == 1)
        end_own(runtime, DTRAIN_ERR_ABORTED, runtime->abort_text ? runtime->abort_text : "");
    if (has_detector_news(runtime))
        take_detector_news(runtime, now_ns);
    if (phase(runtime) == DT_PHASE_GONE) {
        (void)take_events(runtime, now_ns, &moved);
        moved |= dt_complete_errands(runtime); /* which fail */
        return moved ? DT_STEP_BUSY : DT_STEP_IDLE;
    }
    dtrain_status_t status = run(runtime, now_ns, &moved);
    if (status != DTRAIN_OK) {
        char text[DT_ERROR_MAX];
        snprintf(text, sizeof text, "rank %d: %.900s", runtime->world.topology.rank,
                 dt_last_error());
        if (!take_failure(runtime, status, text, now_ns))
            end_own(runtime, status, text);
        return DT_STEP_BUSY;
    }
    if (moved)
        return DT_STEP_BUSY;
    if (runtime->lost_ns != 0)
        return DT_STEP_IDLE;
    if (!dt_psets_is_idle(&runtime->psets))
        return DT_STEP_POLL;
    linger(runtime, now_ns);
    return DT_STEP_IDLE;
}

dt_step_t dt_coord_step(dt_runtime_t *runtime)
{
    dt_step_t result = step(runtime);
    /* Last, when nothing is half done: they may submit more. */
    return dt_complete_callbacks(runtime) ? DT_STEP_BUSY : result;
}
