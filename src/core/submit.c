/* submit.c - from a caller's tensor to an operation in the intake: every check of arguments that
 * needs no other rank. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/fault.h"
#include "base/memory.h"
#include "base/status.h"
#include "core/completion.h"
#include "core/pset_change.h"
#include "core/pset_key.h"

#define RESERVED_PREFIX "dtrain."

static dtrain_status_t check_options(const dtrain_options_t *options, const char *kind,
                                     const char *name)
{
    if (options->struct_size < sizeof *options)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "%s '%.200s': dtrain_options_t: struct_size is %u, not %zu: set it to "
                       "sizeof",
                       kind, name, options->struct_size, sizeof *options);
    if (options->priority != 0 || options->callback || options->user || options->reserved != 0)
        return dt_fail(DTRAIN_ERR_UNSUPPORTED,
                       "%s '%.200s': dtrain_options_t: priority, callback and user are reserved "
                       "in this version",
                       kind, name);
    if (options->timeout_ms < -1)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "%s '%.200s': dtrain_options_t: timeout_ms is %d", kind, name,
                       options->timeout_ms);
    return DTRAIN_OK;
}

/* What must be right before other ranks can be told of anything: that there is a name. */
static dtrain_status_t check_name(const dtrain_tensor_t *tensor, size_t *length)
{
    if (!tensor)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "the tensor is NULL");
    if (tensor->struct_size < sizeof *tensor)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "dtrain_tensor_t: struct_size is %u, not %zu: set it to sizeof",
                       tensor->struct_size, sizeof *tensor);
    if (!tensor->name || tensor->name[0] == '\0')
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "the tensor has no name");
    *length = strnlen(tensor->name, DTRAIN_NAME_MAX + 1);
    if (*length > DTRAIN_NAME_MAX)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "the name '%.60s…' is longer than %d bytes",
                       tensor->name, DTRAIN_NAME_MAX);
    if (strncmp(tensor->name, RESERVED_PREFIX, strlen(RESERVED_PREFIX)) == 0)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "the name '%.200s' starts with \"" RESERVED_PREFIX "\", which is reserved",
                       tensor->name);
    return DTRAIN_OK;
}

static dtrain_status_t fill_signature(const dt_submission_t *submission,
                                      const dtrain_options_t *options, dt_signature_t *signature)
{
    const dtrain_tensor_t *tensor = submission->tensor;
    signature->kind = (uint8_t)submission->kind;
    signature->pset = options->pset;
    signature->prescale = signature->postscale = 1;
    if (!dt_kind_has_data(signature->kind))
        return DTRAIN_OK;
    if (dt_dtype_size(tensor->dtype) == 0)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "%s '%.200s': %d is no element type",
                       dt_kind_name(signature->kind), tensor->name, (int)tensor->dtype);
    signature->dtype = (uint8_t)tensor->dtype;
    signature->device = tensor->device;
    if (tensor->ndim < 0 || tensor->ndim > DTRAIN_NDIM_MAX)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "%s '%.200s': ndim is %d, not 0 to %d",
                       dt_kind_name(signature->kind), tensor->name, tensor->ndim, DTRAIN_NDIM_MAX);
    if (tensor->ndim > 0 && !tensor->shape)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "%s '%.200s': the shape is NULL",
                       dt_kind_name(signature->kind), tensor->name);
    signature->ndim = (uint8_t)tensor->ndim;
    for (int i = 0; i < tensor->ndim; i++)
        signature->shape[i] = tensor->shape[i];
    if (submission->kind == DT_KIND_BROADCAST) {
        signature->root = submission->root;
        return DTRAIN_OK;
    }
    if ((unsigned)options->op >= DT_OP_COUNT)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "allreduce '%.200s': %d is no reduction",
                       tensor->name, (int)options->op);
    signature->op = (uint8_t)options->op;
    if (options->prescale != 0)
        signature->prescale = options->prescale;
    if (options->postscale != 0)
        signature->postscale = options->postscale;
    return DTRAIN_OK;
}

static int overlap(const void *a, const void *b, int64_t bytes)
{
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return x != y && (x < y ? y - x : x - y) < (uintptr_t)bytes;
}

static dtrain_status_t check_buffers(dt_operation_t *operation, const char *name, int rank)
{
    const dt_signature_t *signature = &operation->signature;
    const char *kind = dt_kind_name(signature->kind);
    if (signature->kind == DT_KIND_BROADCAST && signature->root == rank) {
        if (!operation->in)
            operation->in = operation->out;
        if (!operation->out)
            operation->out = (void *)operation->in;
    } else if (signature->kind == DT_KIND_BROADCAST) {
        operation->in = operation->out; /* not read */
    }
    if (operation->bytes > 0 && (!operation->in || !operation->out))
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "%s '%.200s': the %s buffer is NULL, and the tensor has %" PRId64
                       " elements",
                       kind, name, operation->in ? "output" : "input", operation->count);
    if (overlap(operation->in, operation->out, operation->bytes))
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "%s '%.200s': input and output overlap without being the same", kind, name);
    return DTRAIN_OK;
}

static dtrain_status_t check_root(const dt_signature_t *signature, const char *name,
                                  const dt_pset_t *set)
{
    if (signature->kind != DT_KIND_BROADCAST || dt_rank_set_has(&set->members, signature->root))
        return DTRAIN_OK;
    return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "%s '%.200s': root %d is not in process set %d",
                   dt_kind_name(signature->kind), name, signature->root, set->id);
}

/* Fills in the operation. An error here is one that the other ranks must learn of. */
static dtrain_status_t describe(const dt_runtime_t *runtime, const dt_submission_t *submission,
                                const dtrain_options_t *options, const char *name,
                                dt_operation_t *operation)
{
    const dt_topology_t *topology = &runtime->world.topology;
    dtrain_status_t status = fill_signature(submission, options, &operation->signature);
    if (status == DTRAIN_OK)
        status = dt_signature_check(&operation->signature, name, topology->size);
    operation->in = operation->out = NULL;
    operation->count = operation->bytes = 0;
    if (status == DTRAIN_OK)
        status = check_root(&operation->signature, name, operation->set);
    if (status != DTRAIN_OK || !dt_kind_has_data(operation->signature.kind))
        return status;
    operation->in = submission->tensor->in;
    operation->out = submission->tensor->out;
    operation->count = dt_signature_count(&operation->signature);
    operation->bytes =
        operation->count * (int64_t)dt_dtype_size((dtrain_dtype_t)operation->signature.dtype);
    return check_buffers(operation, name, topology->rank);
}

/* `options` NULL: of a call that was refused. */
static void set_timeout(const dt_runtime_t *runtime, const dtrain_options_t *options,
                        dt_operation_t *operation)
{
    operation->timeout_ns = runtime->config.timeout_ns;
    /* What a join waits for is the end of the others' data: that takes as long as it takes. */
    if (options && operation->signature.kind == DT_KIND_JOIN)
        operation->timeout_ns = DT_NEVER;
    if (options && options->timeout_ms != 0)
        operation->timeout_ns =
            options->timeout_ms < 0 ? DT_NEVER : options->timeout_ms * DT_NS_PER_MS;
}

/* A call that goes into the intake, under the key of its name. */
typedef struct call {
    const dt_submission_t *submission;
    const dtrain_options_t *options; /* not NULL */
    const char *name;
    size_t name_length;
    char key[DT_KEY_MAX + 1];
    size_t length;  /* of the key */
    int is_private; /* when it is refused no other rank waits for it */
} call_t;

/* Lets the other ranks know of a call that was refused here, so that theirs does not wait for it.
 * Takes the operation over. The thread's last error stays. */
static void tell_refused(dt_runtime_t *runtime, dt_operation_t *operation, const call_t *call,
                         dtrain_status_t status)
{
    char text[DT_ERROR_MAX];
    snprintf(text, sizeof text, "%s", dt_last_error());
    dt_submission_end(runtime, operation, status);
    operation->is_refused = 1;
    operation->status = status;
    operation->error = dt_strdup(text);
    if (call->is_private || runtime->world.topology.size == 1 ||
        dt_intake_submit(&runtime->intake, operation, call->key, call->length) != DTRAIN_OK)
        dt_handle_release(runtime->handles, operation, atomic_load(&operation->handle));
    else
        dt_baton_notify(runtime);
    dt_fail(status, "%s", text);
}

/* Puts "allreduce 'x': " before the thread's last error. */
static dtrain_status_t add_context(const call_t *call, dtrain_status_t status)
{
    char why[DT_ERROR_MAX];
    snprintf(why, sizeof why, "%s", dt_last_error());
    return dt_fail(status, "%s '%.200s': %.700s", dt_kind_name((uint8_t)call->submission->kind),
                   call->name, why);
}

/* Finds the process set that the call is on, and sees that this rank may call on it. A call from
 * outside is told to the members, who disagree with this rank on who they are; one on no set at
 * all to those who wait for it in the world, where most such slips are made. */
static dtrain_status_t enter_set(dt_runtime_t *runtime, call_t *call, dt_operation_t *operation)
{
    dt_pset_t *set;
    dtrain_status_t status = dt_pset_enter(&runtime->psets, call->options->pset, &set);
    if (status != DTRAIN_OK) {
        call->length = dt_pset_key(DTRAIN_PSET_WORLD, call->name, call->name_length, call->key);
        return add_context(call, status);
    }
    operation->set = set;
    if (set->rank < 0)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "%s '%.200s': rank %d is not in process set %d",
                       dt_kind_name((uint8_t)call->submission->kind), call->name,
                       runtime->world.topology.rank, set->id);
    int is_join = call->submission->kind == DT_KIND_JOIN;
    int had_joined = is_join ? atomic_exchange(&set->has_joined, 1) : atomic_load(&set->has_joined);
    if (!had_joined)
        return DTRAIN_OK;
    call->is_private = 1;
    operation->set = NULL;
    dt_pset_leave(set);
    return dt_fail(is_join ? DTRAIN_ERR_DUPLICATE_NAME : DTRAIN_ERR_INVALID_ARGUMENT,
                   "%s '%.200s': this rank has joined process set %d, and its join is not done",
                   dt_kind_name((uint8_t)call->submission->kind), call->name, set->id);
}

/* Every check of a call, in an order in which an error found late undoes what went before. */
static dtrain_status_t check_call(dt_runtime_t *runtime, call_t *call, dt_operation_t *operation,
                                  const dtrain_handle_t *handle)
{
    uint8_t kind = (uint8_t)call->submission->kind;
    int is_change = kind == DT_KIND_PSET_ADD || kind == DT_KIND_PSET_REMOVE;
    int has_pset = !is_change && call->options->struct_size >= sizeof *call->options;
    call->length = dt_pset_key(has_pset ? call->options->pset : DTRAIN_PSET_WORLD, call->name,
                               call->name_length, call->key);
    dtrain_status_t status = DTRAIN_OK;
    if (has_pset)
        status = enter_set(runtime, call, operation);
    if (status == DTRAIN_OK)
        status = check_options(call->options, dt_kind_name(kind), call->name);
    if (status == DTRAIN_OK && !handle)
        status = dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "%s '%.200s': the handle's address is NULL",
                         dt_kind_name(kind), call->name);
    if (status == DTRAIN_OK && is_change) {
        status = dt_pset_change_describe(runtime, call->submission, operation);
        if (status != DTRAIN_OK)
            status = add_context(call, status);
    } else if (status == DTRAIN_OK) {
        status = describe(runtime, call->submission, call->options, call->name, operation);
    }
    return status;
}

/* Checks and enters an operation that has a name, or enters it as refused. */
static dtrain_status_t submit_named(dt_runtime_t *runtime, const dt_submission_t *submission,
                                    const char *name, size_t length, dtrain_handle_t *handle)
{
    static const dtrain_options_t defaults = {.struct_size = sizeof defaults};
    call_t call;
    call.submission = submission;
    call.options = submission->options ? submission->options : &defaults;
    call.name = name;
    call.name_length = length;
    call.is_private = 0;
    dt_operation_t *operation = dt_handle_acquire(runtime->handles);
    if (!operation)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory or handles for '%.200s'", name);
    dt_fault_point(DT_FAULT_ENQUEUE);
    uint64_t id = atomic_load_explicit(&operation->handle, memory_order_relaxed);
    memset(&operation->signature, 0, offsetof(dt_signature_t, shape));
    operation->signature.kind = (uint8_t)submission->kind;
    dtrain_status_t status = check_call(runtime, &call, operation, handle);
    set_timeout(runtime, status == DTRAIN_OK ? call.options : NULL, operation);
    if (status != DTRAIN_OK) {
        tell_refused(runtime, operation, &call, status);
        return status;
    }
    status = dt_intake_submit(&runtime->intake, operation, call.key, call.length);
    if (status != DTRAIN_OK) {
        dt_submission_end(runtime, operation, status);
        dt_handle_release(runtime->handles, operation, id);
        return status;
    }
    *handle = id;
    if (!submission->will_wait || !runtime->world.control)
        dt_baton_notify(runtime);
    return DTRAIN_OK;
}

/* The name of an operation that has none of its own; NULL where the caller gives one. */
static const char *fixed_name(dt_kind_t kind)
{
    switch (kind) {
    case DT_KIND_BARRIER:
        return DT_NAME_BARRIER;
    case DT_KIND_JOIN:
        return DT_NAME_JOIN;
    case DT_KIND_PSET_ADD:
    case DT_KIND_PSET_REMOVE:
        return DT_NAME_PSET;
    default:
        return NULL;
    }
}

dtrain_status_t dt_runtime_submit(dt_runtime_t *runtime, const dt_submission_t *submission,
                                  dtrain_handle_t *handle)
{
    const char *name = fixed_name(submission->kind);
    if (name)
        return submit_named(runtime, submission, name, strlen(name), handle);
    size_t length = 0;
    dtrain_status_t status = check_name(submission->tensor, &length);
    if (status != DTRAIN_OK)
        return status;
    return submit_named(runtime, submission, submission->tensor->name, length, handle);
}
