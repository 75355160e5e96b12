/* submit.c - from a caller's tensor to an operation in the intake: every check of arguments that
 * needs no other rank. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/dtype.h"
#include "base/fault.h"
#include "base/map.h"
#include "base/memory.h"
#include "base/status.h"
#include "core/completion.h"
#include "core/operand.h"
#include "core/pset_change.h"
#include "core/pset_key.h"
#include "core/sparse.h"

#define RESERVED_PREFIX "dtrain."

/* Of dtrain_options_t as it was at first. */
#define OPTIONS_FIRST_SIZE offsetof(dtrain_options_t, codec)

static dtrain_status_t check_options(const dtrain_options_t *options, const char *kind,
                                     const char *name)
{
    if (options->struct_size < OPTIONS_FIRST_SIZE)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "%s '%.200s': dtrain_options_t: struct_size is %u, not %zu: set it to "
                       "sizeof",
                       kind, name, options->struct_size, sizeof *options);
    if (options->reserved != 0)
        return dt_fail(DTRAIN_ERR_UNSUPPORTED,
                       "%s '%.200s': dtrain_options_t: reserved is %u, not 0", kind, name,
                       options->reserved);
    if (options->timeout_ms < -1)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "%s '%.200s': dtrain_options_t: timeout_ms is %d", kind, name,
                       options->timeout_ms);
    return DTRAIN_OK;
}

/* What must be right before other ranks can be told of anything: that there is a name. */
static dtrain_status_t check_name(const dtrain_tensor_t *tensor, int is_own, size_t *length)
{
    if (!tensor)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "the tensor is NULL");
    if (tensor->struct_size < offsetof(dtrain_tensor_t, out_bytes)) /* as it was at first */
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "dtrain_tensor_t: struct_size is %u, not %zu: set it to sizeof",
                       tensor->struct_size, sizeof *tensor);
    if (!tensor->name || tensor->name[0] == '\0')
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "the tensor has no name");
    *length = strnlen(tensor->name, DTRAIN_NAME_MAX + 1);
    if (*length > DTRAIN_NAME_MAX)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "the name '%.60s…' is longer than %d bytes",
                       tensor->name, DTRAIN_NAME_MAX);
    if (!is_own && strncmp(tensor->name, RESERVED_PREFIX, strlen(RESERVED_PREFIX)) == 0)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "the name '%.200s' starts with \"" RESERVED_PREFIX "\", which is reserved",
                       tensor->name);
    return DTRAIN_OK;
}

/* What the ranks must agree on about the tensor itself. */
static dtrain_status_t fill_tensor(const dtrain_tensor_t *tensor, dt_signature_t *signature)
{
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
    if (dt_kind_traits(signature->kind)->rows_differ && tensor->ndim > 0)
        signature->shape[0] = 1;
    return DTRAIN_OK;
}

static dtrain_status_t fill_signature(const dt_submission_t *submission, int rank,
                                      const dtrain_options_t *options, dt_signature_t *signature)
{
    const dt_kind_traits_t *traits = dt_kind_traits(signature->kind);
    signature->pset = options->pset;
    signature->prescale = signature->postscale = 1;
    signature->group = submission->group;
    signature->group_size = submission->group_size;
    signature->group_index = submission->group_index;
    if (traits->is_control)
        return DTRAIN_OK;
    signature->priority = options->priority;
    dtrain_status_t status = fill_tensor(submission->tensor, signature);
    if (status != DTRAIN_OK)
        return status;
    if (submission->kind == DT_KIND_TRANSFER) {
        signature->root = submission->is_receiver ? submission->root : rank;
        signature->peer = submission->is_receiver ? rank : submission->root;
    } else if (traits->has_root) {
        signature->root = submission->root;
    }
    if (!traits->reduces)
        return DTRAIN_OK;
    if (options->op != DTRAIN_OP_ADASUM && (unsigned)options->op >= DT_OP_COUNT)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "%s '%.200s': %d is no reduction", traits->name,
                       submission->tensor->name, (int)options->op);
    signature->op = (uint8_t)options->op;
    if (options->prescale != 0)
        signature->prescale = options->prescale;
    if (options->postscale != 0)
        signature->postscale = options->postscale;
    return DTRAIN_OK;
}

/* The ranks that the call names must be in its process set. */
static dtrain_status_t check_members(const dt_signature_t *signature, const char *name,
                                     const dt_pset_t *set)
{
    const dt_kind_traits_t *traits = dt_kind_traits(signature->kind);
    int is_transfer = signature->kind == DT_KIND_TRANSFER;
    int rank = signature->root;
    if (!traits->has_root)
        return DTRAIN_OK;
    if (is_transfer && dt_rank_set_has(&set->members, rank))
        rank = signature->peer;
    if (dt_rank_set_has(&set->members, rank))
        return DTRAIN_OK;
    return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "%s '%.200s': %s %d is not in process set %d",
                   traits->name, name, is_transfer ? "peer" : "root", rank, set->id);
}

/* Fills in the operation. An error here is one that the other ranks must learn of. */
static dtrain_status_t describe(dt_runtime_t *runtime, const dt_submission_t *submission,
                                const dtrain_options_t *options, const char *name,
                                dt_operation_t *operation)
{
    const dt_topology_t *topology = &runtime->world.topology;
    const dt_pset_t *set = operation->set;
    if (submission->refusal)
        return dt_fail(submission->refusal_status != DTRAIN_OK ? submission->refusal_status
                                                               : DTRAIN_ERR_INVALID_ARGUMENT,
                       "%s", submission->refusal);
    dtrain_status_t status =
        fill_signature(submission, topology->rank, options, &operation->signature);
    if (status == DTRAIN_OK)
        status = dt_signature_check(&operation->signature, name, topology->size);
    if (status == DTRAIN_OK)
        status = check_members(&operation->signature, name, set);
    if (status != DTRAIN_OK || dt_kind_traits(operation->signature.kind)->is_control)
        return status;
    dt_pset_locate(set, operation);
    if (operation->signature.device != DTRAIN_DEVICE_CPU)
        operation->gpu = &runtime->gpu;
    /* To take rows from a GPU one waits for it. */
    if (operation->signature.kind == DT_KIND_SPARSE && operation->gpu)
        status = dt_runtime_may_block(runtime, "a sparse allreduce on a GPU");
    if (status != DTRAIN_OK)
        return status;
    if (operation->signature.kind == DT_KIND_SPARSE)
        status = dt_sparse_fill(operation, submission, set->size);
    else
        status = dt_operand_fill(operation, submission, set->rank, set->size);
    if (status == DTRAIN_OK && options->struct_size >= sizeof *options && options->codec)
        status = dt_coded_describe(operation, options->codec, name);
    if (status == DTRAIN_OK && operation->signature.device != DTRAIN_DEVICE_CPU)
        status = dt_gpu_take(&runtime->gpu, submission->tensor, submission->ready,
                             submission->memory, operation);
    return status;
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

static void begin_call(call_t *call, const dt_submission_t *submission, const char *name,
                       size_t length)
{
    static const dtrain_options_t defaults = {.struct_size = sizeof defaults};
    call->submission = submission;
    call->options = submission->options ? submission->options : &defaults;
    call->name = name;
    call->name_length = length;
    call->key[0] = '\0';
    call->length = 0;
    call->is_private = 0;
}

/* Turns an operation into one that tells the other ranks of a refused call. */
static void refuse(dt_runtime_t *runtime, dt_operation_t *operation, dtrain_status_t status,
                   const char *text)
{
    dt_submission_end(runtime, operation, status);
    operation->is_refused = 1;
    operation->callback = NULL;
    operation->status = status;
    operation->error = dt_strdup(text);
}

/* Lets the other ranks know of a call that was refused here, so that theirs does not wait for it.
 * Takes the operation over. The thread's last error stays. */
static void tell_refused(dt_runtime_t *runtime, dt_operation_t *operation, const call_t *call,
                         dtrain_status_t status)
{
    char text[DT_ERROR_MAX];
    snprintf(text, sizeof text, "%s", dt_last_error());
    refuse(runtime, operation, status, text);
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
 * all to those who wait for the name in the world, or else in another set. */
static dtrain_status_t enter_set(dt_runtime_t *runtime, call_t *call, dt_operation_t *operation)
{
    dt_pset_t *set;
    dtrain_status_t status = dt_pset_enter(&runtime->psets, call->options->pset, &set);
    if (status != DTRAIN_OK) {
        call->length = dt_pset_key(DTRAIN_PSET_WORLD, call->name, call->name_length, call->key);
        operation->is_stray = 1;
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

/* Every check of a call but of where the handle goes. An error found late undoes what went before,
 * when the operation is refused. */
static dtrain_status_t check_call(dt_runtime_t *runtime, call_t *call, dt_operation_t *operation)
{
    uint8_t kind = (uint8_t)call->submission->kind;
    int is_change = kind == DT_KIND_PSET_ADD || kind == DT_KIND_PSET_REMOVE;
    int has_pset = !is_change && call->options->struct_size >= OPTIONS_FIRST_SIZE;
    call->length = dt_pset_key(has_pset ? call->options->pset : DTRAIN_PSET_WORLD, call->name,
                               call->name_length, call->key);
    dtrain_status_t status = DTRAIN_OK;
    if (has_pset)
        status = enter_set(runtime, call, operation);
    if (status == DTRAIN_OK)
        status = check_options(call->options, dt_kind_name(kind), call->name);
    if (status == DTRAIN_OK && is_change) {
        status = dt_pset_change_describe(runtime, call->submission, operation);
        if (status != DTRAIN_OK)
            status = add_context(call, status);
    } else if (status == DTRAIN_OK) {
        status = describe(runtime, call->submission, call->options, call->name, operation);
    }
    return status;
}

/* An operation for a call that has a name. *status is what is wrong with the call, of which the
 * other ranks must learn; NULL: there is no room for an operation, and *status says so. */
static dt_operation_t *make_operation(dt_runtime_t *runtime, call_t *call, dtrain_status_t *status)
{
    dt_operation_t *operation = dt_handle_acquire(runtime->handles);
    if (!operation) {
        *status =
            dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory or handles for '%.200s'", call->name);
        return NULL;
    }
    dt_fault_point(DT_FAULT_ENQUEUE);
    memset(&operation->signature, 0, offsetof(dt_signature_t, shape));
    operation->signature.kind = (uint8_t)call->submission->kind;
    operation->stamp = call->submission->stamp;
    operation->in = operation->out = NULL;
    operation->count = operation->bytes = 0;
    *status = check_call(runtime, call, operation);
    set_timeout(runtime, *status == DTRAIN_OK ? call->options : NULL, operation);
    if (*status == DTRAIN_OK) {
        operation->callback = call->options->callback;
        operation->user = call->options->user;
    }
    return operation;
}

static dtrain_status_t submit_named(dt_runtime_t *runtime, const dt_submission_t *submission,
                                    const char *name, size_t length, dtrain_handle_t *handle)
{
    call_t call;
    dtrain_status_t status;
    begin_call(&call, submission, name, length);
    dt_operation_t *operation = make_operation(runtime, &call, &status);
    if (!operation)
        return status;
    uint64_t id = atomic_load_explicit(&operation->handle, memory_order_relaxed);
    if (status == DTRAIN_OK && !handle)
        status = dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "%s '%.200s': the handle's address is NULL",
                         dt_kind_name((uint8_t)submission->kind), name);
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
    dtrain_status_t status = check_name(submission->tensor, submission->is_own, &length);
    if (status != DTRAIN_OK)
        return status;
    return submit_named(runtime, submission, submission->tensor->name, length, handle);
}

/* ---- Groups ----------------------------------------------------------------------------- */

/* The first thing that is wrong with the group stands, with its text. */
static void note(dtrain_status_t *first, dtrain_status_t status, char text[DT_ERROR_MAX], int n)
{
    if (status == DTRAIN_OK || *first != DTRAIN_OK)
        return;
    *first = status;
    snprintf(text, DT_ERROR_MAX, "a group of %d: %.900s", n, dt_last_error());
}

static uint64_t hash_names(const dt_intake_item_t *items, int n, dtrain_pset_t pset)
{
    uint64_t hash = (uint64_t)n << 32 | (uint32_t)pset;
    for (int i = 0; i < n; i++) {
        uint64_t pair[2] = {hash, dt_hash(items[i].name, items[i].length)};
        hash = dt_hash(pair, sizeof pair);
    }
    return hash | 1; /* 0 is no group */
}

/* Makes one of a group's operations, and the key it goes by. */
static dtrain_status_t make_member(dt_runtime_t *runtime, const dt_submission_t *one,
                                   dt_intake_item_t *item, int *is_private)
{
    call_t call;
    dtrain_status_t status;
    begin_call(&call, one, item->name, item->length);
    item->operation = make_operation(runtime, &call, &status);
    *is_private |= call.is_private;
    item->length = call.length;
    item->name = item->operation ? dt_strdup(call.key) : NULL;
    if (item->operation && !item->name) {
        dt_submission_end(runtime, item->operation, DTRAIN_ERR_OUT_OF_MEMORY);
        dt_handle_release(runtime->handles, item->operation, atomic_load(&item->operation->handle));
        item->operation = NULL;
        status = dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for the name of a tensor");
    }
    return status;
}

/* Makes the operations; NULL where there is no name, or no room. What is wrong with any of them is
 * in *first and text. Returns 1 when no other rank waits for what is refused. */
static int make_members(dt_runtime_t *runtime, const dt_submission_t *submission, int n,
                        dt_intake_item_t *items, dtrain_status_t *first, char text[DT_ERROR_MAX])
{
    int is_private = 0;
    for (int i = 0; i < n; i++) {
        const dtrain_tensor_t *tensor = &submission->tensor[i];
        dtrain_status_t status = check_name(tensor, 0, &items[i].length);
        items[i].name = status == DTRAIN_OK ? tensor->name : NULL;
        note(first, status, text, n);
    }
    dtrain_pset_t pset = submission->options ? submission->options->pset : DTRAIN_PSET_WORLD;
    dt_submission_t one = *submission;
    one.group_size = (uint32_t)n;
    one.group = *first == DTRAIN_OK ? hash_names(items, n, pset) : 1;
    for (int i = 0; i < n; i++) {
        if (!items[i].name)
            continue;
        one.tensor = &submission->tensor[i];
        one.group_index = (uint32_t)i;
        note(first, make_member(runtime, &one, &items[i], &is_private), text, n);
    }
    return is_private;
}

/* The whole group is refused: each of its names tells the other ranks so. */
static void refuse_members(dt_runtime_t *runtime, dt_intake_item_t *items, int n, int is_private,
                           dtrain_status_t status, const char *text)
{
    for (int i = 0; i < n; i++) {
        if (items[i].operation)
            refuse(runtime, items[i].operation, status, text);
    }
    if (runtime->world.topology.size > 1 && !is_private)
        dt_intake_submit_refused(&runtime->intake, items, n);
    for (int i = 0; i < n; i++) {
        dt_operation_t *left = items[i].operation;
        if (left)
            dt_handle_release(runtime->handles, left, atomic_load(&left->handle));
    }
}

static dtrain_status_t submit_members(dt_runtime_t *runtime, const dt_submission_t *submission,
                                      int n, dt_intake_item_t *items, dtrain_handle_t *ids,
                                      dtrain_handle_t *handles)
{
    dtrain_status_t first = DTRAIN_OK;
    char text[DT_ERROR_MAX] = "";
    int is_private = make_members(runtime, submission, n, items, &first, text);
    if (!handles)
        note(&first, dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "handles is NULL"), text, n);
    for (int i = 0; i < n && first == DTRAIN_OK; i++)
        ids[i] = atomic_load(&items[i].operation->handle);
    if (first == DTRAIN_OK)
        note(&first, dt_intake_submit_all(&runtime->intake, items, n), text, n);
    if (first == DTRAIN_OK)
        memcpy(handles, ids, (size_t)n * sizeof *handles);
    else
        refuse_members(runtime, items, n, is_private, first, text);
    for (int i = 0; i < n; i++)
        dt_free((char *)items[i].name);
    dt_baton_notify(runtime);
    return first == DTRAIN_OK ? first : dt_fail(first, "%s", text);
}

dtrain_status_t dt_runtime_submit_group(dt_runtime_t *runtime, const dt_submission_t *submission,
                                        int n, dtrain_handle_t *handles)
{
    const char *kind = dt_kind_name((uint8_t)submission->kind);
    if (n < 1 || !submission->tensor)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "%s: a group of %d tensors", kind, n);
    dt_intake_item_t *items = dt_calloc((size_t)n, sizeof *items);
    dtrain_handle_t *ids = dt_calloc((size_t)n, sizeof *ids);
    dtrain_status_t status =
        items && ids
            ? submit_members(runtime, submission, n, items, ids, handles)
            : dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for a group of %d tensors", n);
    dt_free(items);
    dt_free(ids);
    return status;
}
