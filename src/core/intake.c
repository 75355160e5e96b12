#include "core/intake.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "core/pset_key.h"
#include "core/wire.h"

void dt_intake_init(dt_intake_t *intake)
{
    memset(intake, 0, sizeof *intake);
    pthread_mutex_init(&intake->lock, NULL);
}

void dt_intake_free(dt_intake_t *intake)
{
    dt_response_cache_free(&intake->cache);
    dt_free(intake->closed_text);
    pthread_mutex_destroy(&intake->lock);
}

/* Puts an operation whose name is free into the queue. [lock held] */
static void enqueue(dt_intake_t *intake, dt_operation_t *operation)
{
    operation->name->in_flight = operation;
    operation->id = operation->is_refused
                        ? DT_ID_NONE
                        : dt_response_cache_id(operation->name, &operation->signature);
    dt_operation_append(&intake->queue, operation);
    atomic_fetch_add(&intake->num_queued, 1);
}

/* Whether an operation may wait for its name, which is in flight. Behind a refused call, of which
 * the caller thinks as over, there may be one that was not. [lock held] */
static int may_be_held(const dt_intake_t *intake, const dt_operation_t *operation)
{
    uint8_t kind = operation->signature.kind;
    if (operation->is_refused || kind == DT_KIND_BARRIER || kind == DT_KIND_PSET_ADD ||
        kind == DT_KIND_PSET_REMOVE)
        return 1;
    const dt_operation_t *held = intake->held.first;
    while (held && (held->name != operation->name || held->is_refused))
        held = held->next;
    return operation->name->in_flight->is_refused && !held;
}

/* [lock held] */
static dtrain_status_t submit(dt_intake_t *intake, dt_operation_t *operation, const char *name,
                              size_t length)
{
    if (intake->closed != DTRAIN_OK)
        return dt_fail(intake->closed, "%s", intake->closed_text ? intake->closed_text : "");
    operation->name = dt_response_cache_get(&intake->cache, name, length);
    if (!operation->name)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for the name '%.200s'", name);
    if (!operation->name->in_flight) {
        enqueue(intake, operation);
        return DTRAIN_OK;
    }
    if (!may_be_held(intake, operation)) {
        char text[DT_KEY_TEXT_MAX];
        return dt_fail(DTRAIN_ERR_DUPLICATE_NAME,
                       "%s %s: an operation of that name is in flight already on this rank",
                       dt_kind_name(operation->signature.kind),
                       dt_pset_key_describe(name, length, text, sizeof text));
    }
    dt_operation_append(&intake->held, operation);
    return DTRAIN_OK;
}

dtrain_status_t dt_intake_submit(dt_intake_t *intake, dt_operation_t *operation, const char *name,
                                 size_t length)
{
    pthread_mutex_lock(&intake->lock);
    dtrain_status_t status = submit(intake, operation, name, length);
    pthread_mutex_unlock(&intake->lock);
    return status;
}

/* Takes back what submit took in just now. [lock held] */
static void take_back(dt_intake_t *intake, dt_operation_t *operation)
{
    dt_name_t *name = operation->name;
    if (name->in_flight != operation) {
        dt_operation_remove(&intake->held, operation);
        return;
    }
    dt_operation_remove(&intake->queue, operation);
    atomic_fetch_sub(&intake->num_queued, 1);
    name->in_flight = NULL;
    dt_response_cache_drop(&intake->cache, name);
}

dtrain_status_t dt_intake_submit_all(dt_intake_t *intake, const dt_intake_item_t *items, int n)
{
    dtrain_status_t status = DTRAIN_OK;
    int taken = 0;
    pthread_mutex_lock(&intake->lock);
    while (taken < n && status == DTRAIN_OK) {
        const dt_intake_item_t *item = &items[taken];
        status = submit(intake, item->operation, item->name, item->length);
        taken += status == DTRAIN_OK;
    }
    while (status != DTRAIN_OK && taken > 0)
        take_back(intake, items[--taken].operation);
    pthread_mutex_unlock(&intake->lock);
    return status;
}

void dt_intake_submit_refused(dt_intake_t *intake, dt_intake_item_t *items, int n)
{
    pthread_mutex_lock(&intake->lock);
    for (int i = 0; i < n; i++) {
        dt_intake_item_t *item = &items[i];
        if (!item->operation)
            continue;
        const dt_name_t *name = dt_response_cache_find(&intake->cache, item->name, item->length);
        int is_in_flight = name && name->in_flight && !name->in_flight->is_refused;
        if (!is_in_flight && submit(intake, item->operation, item->name, item->length) == DTRAIN_OK)
            item->operation = NULL;
    }
    pthread_mutex_unlock(&intake->lock);
}

static int move_all(dt_operation_list_t *from, dt_operation_list_t *to)
{
    int count = 0;
    for (dt_operation_t *operation = from->first, *next; operation; operation = next) {
        next = operation->next;
        dt_operation_append(to, operation);
        count++;
    }
    from->first = from->last = NULL;
    return count;
}

int dt_intake_take(dt_intake_t *intake, dt_operation_list_t *taken)
{
    if (atomic_load(&intake->num_queued) == 0)
        return 0;
    pthread_mutex_lock(&intake->lock);
    int count = move_all(&intake->queue, taken);
    atomic_store(&intake->num_queued, 0);
    pthread_mutex_unlock(&intake->lock);
    return count;
}

int dt_intake_take_held(dt_intake_t *intake, dt_operation_list_t *taken)
{
    pthread_mutex_lock(&intake->lock);
    int count = move_all(&intake->held, taken);
    pthread_mutex_unlock(&intake->lock);
    return count;
}

dt_operation_t *dt_intake_find(dt_intake_t *intake, const char *name, size_t length)
{
    pthread_mutex_lock(&intake->lock);
    dt_name_t *found = dt_response_cache_find(&intake->cache, name, length);
    dt_operation_t *operation = found ? found->in_flight : NULL;
    pthread_mutex_unlock(&intake->lock);
    return operation;
}

dtrain_status_t dt_intake_learn(dt_intake_t *intake, dt_operation_t *operation, uint32_t id)
{
    pthread_mutex_lock(&intake->lock);
    int failed = dt_response_cache_learn(operation->name, &operation->signature, id);
    pthread_mutex_unlock(&intake->lock);
    return failed ? dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "out of memory for the response cache")
                  : DTRAIN_OK;
}

/* The first operation held back for a name. [lock held] */
static dt_operation_t *find_held(dt_intake_t *intake, const dt_name_t *name)
{
    dt_operation_t *operation = intake->held.first;
    while (operation && operation->name != name)
        operation = operation->next;
    return operation;
}

/* [lock held] */
static void finish(dt_intake_t *intake, dt_operation_t *operation)
{
    dt_name_t *name = operation->name;
    /* Stand-ins and bystanders have none. What was held back was never in flight when the world
     * ended under it. */
    if (!name || name->in_flight != operation)
        return;
    name->in_flight = NULL;
    dt_operation_t *held = find_held(intake, name);
    if (held) {
        dt_operation_remove(&intake->held, held);
        enqueue(intake, held);
    } else {
        dt_response_cache_drop(&intake->cache, name);
    }
}

void dt_intake_finish(dt_intake_t *intake, dt_operation_t *const *operations, int n)
{
    pthread_mutex_lock(&intake->lock);
    for (int i = 0; i < n; i++)
        finish(intake, operations[i]);
    pthread_mutex_unlock(&intake->lock);
}

void dt_intake_forget(dt_intake_t *intake, int32_t pset)
{
    pthread_mutex_lock(&intake->lock);
    dt_response_cache_forget(&intake->cache, pset);
    pthread_mutex_unlock(&intake->lock);
}

void dt_intake_close(dt_intake_t *intake, dtrain_status_t status, const char *text)
{
    pthread_mutex_lock(&intake->lock);
    if (intake->closed == DTRAIN_OK) {
        intake->closed = status;
        intake->closed_text = dt_strdup(text);
    }
    pthread_mutex_unlock(&intake->lock);
}
