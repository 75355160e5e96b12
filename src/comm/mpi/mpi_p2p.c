#include "comm/mpi/mpi_p2p.h"

#include <sched.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/mpi/mpi_aside.h"
#include "comm/mpi/mpi_call.h"
#include "comm/mpi/mpi_escape.h"
#include "comm/mpi/mpi_world.h"

#define FIRST_SLOTS 64
/* After a failure, receives are given so long to come off the buffers they would write to. */
#define CANCEL_NS (100 * DT_NS_PER_MS)
#define GIVE_UP_NS (DT_NS_PER_S / 2) /* until MPI counts as stuck in that */

/*
 * Requests under way are kept here and not with the caller, so that destroy finds them when the
 * caller has given up: a receive that is left behind would write into memory long freed.
 */
typedef struct slot {
    MPI_Request request; /* MPI_REQUEST_NULL: the slot is free */
    int length;          /* of a receive; -1: a send */
    int next_free;       /* index, or -1 */
} slot_t;

typedef struct mpi_p2p {
    dt_p2p_t base;
    MPI_Comm comm;
    slot_t *slots;
    int num_slots;
    int first_free;
} mpi_p2p_t;

static dtrain_status_t add_slots(mpi_p2p_t *p2p)
{
    int total = p2p->num_slots ? 2 * p2p->num_slots : FIRST_SLOTS;
    slot_t *slots = dt_realloc(p2p->slots, (size_t)total * sizeof *slots);
    if (!slots)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no memory for %d messages under way", total);
    p2p->slots = slots;
    for (int i = total - 1; i >= p2p->num_slots; i--) {
        slots[i] = (slot_t){.request = MPI_REQUEST_NULL, .next_free = p2p->first_free};
        p2p->first_free = i;
    }
    p2p->num_slots = total;
    return DTRAIN_OK;
}

/* The slot that the next message will take; it stays free until `keep`. NULL, with *status. */
static slot_t *find_slot(mpi_p2p_t *p2p, int peer, int tag, size_t length, dtrain_status_t *status)
{
    if (length > DT_P2P_MESSAGE_MAX || tag < 0 || tag >= DT_P2P_TAG_COUNT) {
        *status =
            dt_fail(DTRAIN_ERR_INTERNAL, "a message of %zu bytes with tag %d to or from rank %d",
                    length, tag, peer);
        return NULL;
    }
    if (p2p->first_free < 0)
        *status = add_slots(p2p);
    return p2p->first_free < 0 ? NULL : &p2p->slots[p2p->first_free];
}

/* After MPI's call: takes the slot, unless that failed. */
static dtrain_status_t keep(mpi_p2p_t *p2p, slot_t *slot, int length, dtrain_status_t status,
                            dt_p2p_request_t *request)
{
    if (status != DTRAIN_OK) {
        slot->request = MPI_REQUEST_NULL;
        return status;
    }
    slot->length = length;
    p2p->first_free = slot->next_free;
    *request = (dt_p2p_request_t){.word = {(uint64_t)(slot - p2p->slots) + 1}};
    return DTRAIN_OK;
}

/* The arguments of a guarded call. */
typedef struct transfer {
    MPI_Comm comm;
    int peer, tag;
    union {
        const void *from;
        void *to;
    } data;
    int length;
    MPI_Request *request;
    int done; /* of a test */
    MPI_Status result;
} transfer_t;

static int call_send(void *arguments)
{
    const transfer_t *call = arguments;
    return MPI_Isend(call->data.from, call->length, MPI_BYTE, call->peer, call->tag, call->comm,
                     call->request);
}

static int call_receive(void *arguments)
{
    const transfer_t *call = arguments;
    return MPI_Irecv(call->data.to, call->length, MPI_BYTE, call->peer, call->tag, call->comm,
                     call->request);
}

static int call_test(void *arguments)
{
    transfer_t *call = arguments;
    return MPI_Test(call->request, &call->done, &call->result);
}

static int call_probe(void *arguments)
{
    const transfer_t *call = arguments;
    int found;
    return MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, call->comm, &found, MPI_STATUS_IGNORE);
}

static dtrain_status_t mpi_send(dt_p2p_t *base, int peer, int tag, const void *data, size_t length,
                                dt_p2p_request_t *request)
{
    mpi_p2p_t *p2p = (mpi_p2p_t *)base;
    dtrain_status_t status = DTRAIN_OK;
    slot_t *slot = find_slot(p2p, peer, tag, length, &status);
    if (!slot)
        return status;
    transfer_t call = {.comm = p2p->comm,
                       .peer = peer,
                       .tag = tag,
                       .data.from = data,
                       .length = (int)length,
                       .request = &slot->request};
    status = dt_mpi_check(dt_mpi_guard(call_send, &call), "MPI_Isend");
    return keep(p2p, slot, -1, status, request);
}

static dtrain_status_t mpi_receive(dt_p2p_t *base, int peer, int tag, void *data, size_t length,
                                   dt_p2p_request_t *request)
{
    mpi_p2p_t *p2p = (mpi_p2p_t *)base;
    dtrain_status_t status = DTRAIN_OK;
    slot_t *slot = find_slot(p2p, peer, tag, length, &status);
    if (!slot)
        return status;
    transfer_t call = {.comm = p2p->comm,
                       .peer = peer,
                       .tag = tag,
                       .data.to = data,
                       .length = (int)length,
                       .request = &slot->request};
    status = dt_mpi_check(dt_mpi_guard(call_receive, &call), "MPI_Irecv");
    return keep(p2p, slot, (int)length, status, request);
}

static dtrain_status_t check_length(const slot_t *slot, const MPI_Status *result)
{
    int length = 0;
    if (slot->length < 0)
        return DTRAIN_OK;
    dtrain_status_t status =
        dt_mpi_check(MPI_Get_count(result, MPI_BYTE, &length), "MPI_Get_count");
    if (status == DTRAIN_OK && length != slot->length)
        return dt_fail(DTRAIN_ERR_COMMUNICATION,
                       "rank %d sent %d bytes with tag %d where %d were expected",
                       result->MPI_SOURCE, length, result->MPI_TAG, slot->length);
    return status;
}

static dtrain_status_t mpi_test(dt_p2p_t *base, dt_p2p_request_t *request)
{
    mpi_p2p_t *p2p = (mpi_p2p_t *)base;
    if (request->word[0] == 0)
        return DTRAIN_OK;
    int index = (int)(request->word[0] - 1);
    slot_t *slot = &p2p->slots[index];
    transfer_t call = {.request = &slot->request};
    dtrain_status_t status =
        dt_mpi_check(dt_mpi_guard(call_test, &call), slot->length < 0 ? "a send" : "a receive");
    if (status == DTRAIN_OK && !call.done)
        return DTRAIN_IN_PROGRESS;
    if (status == DTRAIN_OK)
        status = check_length(slot, &call.result);
    slot->request = MPI_REQUEST_NULL;
    slot->next_free = p2p->first_free;
    p2p->first_free = index;
    *request = (dt_p2p_request_t){0};
    return status;
}

/* A send cannot be taken back: its peer either receives it or has given up as well. */
static int cancel_receives(mpi_p2p_t *p2p)
{
    int pending = 0;
    for (int i = 0; i < p2p->num_slots; i++) {
        slot_t *slot = &p2p->slots[i];
        if (slot->request == MPI_REQUEST_NULL || slot->length < 0)
            continue;
        if (MPI_Cancel(&slot->request) == MPI_SUCCESS)
            pending++;
        else
            slot->request = MPI_REQUEST_NULL;
    }
    return pending;
}

static int count_receives(mpi_p2p_t *p2p)
{
    int pending = 0;
    for (int i = 0; i < p2p->num_slots; i++) {
        slot_t *slot = &p2p->slots[i];
        transfer_t call = {.request = &slot->request};
        if (slot->request == MPI_REQUEST_NULL || slot->length < 0)
            continue;
        if (dt_mpi_guard(call_test, &call) != MPI_SUCCESS)
            slot->request = MPI_REQUEST_NULL;
        else if (!call.done)
            pending++;
    }
    return pending;
}

static void give_up_receives(void *argument)
{
    mpi_p2p_t *p2p = argument;
    int64_t deadline = dt_now_ns() + CANCEL_NS;
    if (cancel_receives(p2p) == 0)
        return;
    while (count_receives(p2p) > 0 && dt_now_ns() < deadline)
        sched_yield();
}

static int has_receives(const mpi_p2p_t *p2p)
{
    for (int i = 0; i < p2p->num_slots; i++) {
        if (p2p->slots[i].request != MPI_REQUEST_NULL && p2p->slots[i].length >= 0)
            return 1;
    }
    return 0;
}

static void mpi_destroy(dt_p2p_t *base, int clean)
{
    mpi_p2p_t *p2p = (mpi_p2p_t *)base;
    if (!clean && dt_mpi_is_active() && !dt_mpi_has_escaped() && has_receives(p2p) &&
        dt_mpi_aside(give_up_receives, p2p, GIVE_UP_NS) != 0)
        return; /* a thread is in there, with the requests */
    dt_free(p2p->slots);
    dt_free(p2p);
}

/* Open MPI counts a short send as complete when it is copied, although a full socket may not have
 * taken it; any call makes it go on. */
static void mpi_linger(dt_p2p_t *base)
{
    transfer_t call = {.comm = ((mpi_p2p_t *)base)->comm};
    if (dt_mpi_is_active())
        (void)dt_mpi_guard(call_probe, &call);
}

static const dt_p2p_ops_t mpi_ops = {
    .name = "mpi",
    .send = mpi_send,
    .receive = mpi_receive,
    .test = mpi_test,
    .destroy = mpi_destroy,
    .linger = mpi_linger,
};

static dtrain_status_t check_tags(void)
{
    int *highest = NULL;
    int found = 0;
    dtrain_status_t status = dt_mpi_check(
        MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &highest, &found), "MPI_Comm_get_attr");
    if (status == DTRAIN_OK && found && *highest < DT_P2P_TAG_COUNT - 1)
        return dt_fail(DTRAIN_ERR_UNSUPPORTED, "this MPI has tags up to %d, libdtrain needs %d",
                       *highest, DT_P2P_TAG_COUNT - 1);
    return status;
}

dtrain_status_t dt_mpi_p2p_create(MPI_Comm comm, dt_p2p_t **p2p)
{
    dtrain_status_t status = check_tags();
    if (status != DTRAIN_OK)
        return status;
    mpi_p2p_t *made = dt_calloc(1, sizeof *made);
    if (!made)
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no memory for MPI's messages");
    made->base.ops = &mpi_ops;
    made->comm = comm;
    made->first_free = -1;
    status = dt_mpi_check(MPI_Comm_rank(comm, &made->base.rank), "MPI_Comm_rank");
    if (status == DTRAIN_OK)
        status = dt_mpi_check(MPI_Comm_size(comm, &made->base.size), "MPI_Comm_size");
    if (status == DTRAIN_OK)
        status = add_slots(made);
    if (status != DTRAIN_OK) {
        dt_free(made);
        return status;
    }
    *p2p = &made->base;
    return DTRAIN_OK;
}
