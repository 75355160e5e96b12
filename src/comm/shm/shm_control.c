#include "comm/shm/shm_control.h"

#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "comm/shm/shm_mail.h"
#include "comm/shm/shm_segment.h"
#include "comm/shm/shm_stream.h"

/* receive looks into the other control once in so many calls, when it has nobody to serve there but
 * the kernel's news of a death. */
#define BASE_EVERY 64

/* What is queued for a full ring is tried again after so long. */
#define FLUSH_NS DT_NS_PER_MS

typedef enum presence {
    HERE = 0,
    LEAVING = 1, /* its loss is to be told after its last message */
    GONE = 2     /* its loss was told */
} presence_t;

typedef struct partner {
    int rank; /* in the world */
    dt_shm_writer_t writer;
    dt_shm_reader_t reader;
    _Atomic int *dozing; /* [shared] theirs */
    presence_t presence;
    int is_starved; /* the other control had no memory for a message of it */
} partner_t;

typedef struct shm_control {
    dt_control_t ops;
    dt_control_t *base;
    dt_shm_node_t *node; /* keeps the mapping */
    partner_t *partners; /* on rank 0 all other ranks of the node, else rank 0 */
    int num_partners;
    int next;              /* whose turn it is to be read */
    int always_ask_base;   /* [const] there are ranks of other nodes */
    int turns;             /* calls since the base was asked */
    _Atomic int ask_base;  /* [atomic] a wait has ended: there may be news in the base */
    _Atomic int has_queue; /* [atomic] a ring was full; written by the holder */
    _Atomic int *dozing;   /* [shared] ours */
} shm_control_t;

static partner_t *find(shm_control_t *control, int rank)
{
    for (int i = 0; i < control->num_partners; i++) {
        if (control->partners[i].rank == rank)
            return &control->partners[i];
    }
    return NULL;
}

/* After something was written: a partner that sleeps is woken. It raises `dozing` before its last
 * look at the ring, and we read it after writing: one of the two sees the other. */
static void wake_partner(shm_control_t *control, const partner_t *partner)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(partner->dozing, memory_order_relaxed) > 0)
        (void)control->base->ops->send(control->base, partner->rank, "", 0);
}

static dtrain_status_t control_send(dt_control_t *base, int peer, const void *data, size_t length)
{
    shm_control_t *control = (shm_control_t *)base;
    partner_t *partner = find(control, peer);
    if (!partner)
        return control->base->ops->send(control->base, peer, data, length);
    if (partner->presence != HERE)
        return DTRAIN_ERR_RANK_LOST;
    if (dt_shm_write(&partner->writer, data, length))
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no memory for a control message of %zu bytes",
                       length);
    if (partner->writer.queue.length > 0)
        atomic_store_explicit(&control->has_queue, 1, memory_order_relaxed);
    wake_partner(control, partner);
    return DTRAIN_OK;
}

static void flush(shm_control_t *control)
{
    int is_left = 0;
    for (int i = 0; i < control->num_partners; i++) {
        partner_t *partner = &control->partners[i];
        if (partner->writer.queue.length == 0 || partner->presence != HERE)
            continue;
        is_left |= dt_shm_flush(&partner->writer);
        wake_partner(control, partner);
    }
    atomic_store_explicit(&control->has_queue, is_left, memory_order_relaxed);
}

/* A message of a partner's ring: 1 when there is one. */
static int read_rings(shm_control_t *control, dt_control_message_t *message)
{
    for (int i = 0; i < control->num_partners; i++) {
        partner_t *partner = &control->partners[control->next];
        control->next = control->next + 1 < control->num_partners ? control->next + 1 : 0;
        if (partner->presence == GONE)
            continue;
        int found =
            dt_shm_read(&partner->reader, DT_CONTROL_MESSAGE_MAX, &message->data, &message->length);
        message->peer = partner->rank;
        if (found > 0)
            return 1;
        if (found < 0 && partner->presence == HERE) {
            dt_log(DTRAIN_LOG_ERROR, "shm", "the messages of rank %d cannot be read",
                   partner->rank);
            partner->presence = LEAVING;
        }
    }
    return 0;
}

/* What the other control has for the caller; its news about partners is noted. */
static dt_control_event_t read_base(shm_control_t *control, dt_control_message_t *message)
{
    for (;;) {
        dt_control_event_t event = control->base->ops->receive(control->base, message);
        partner_t *partner = event == DT_CONTROL_NONE ? NULL : find(control, message->peer);
        if (!partner)
            return event;
        /* A partner's message there only wakes. */
        if (event == DT_CONTROL_LOST && partner->presence == HERE) {
            partner->presence = LEAVING;
            partner->is_starved = message->is_starved;
        }
    }
}

static dt_control_event_t tell_lost(shm_control_t *control, dt_control_message_t *message)
{
    for (int i = 0; i < control->num_partners; i++) {
        partner_t *partner = &control->partners[i];
        if (partner->presence != LEAVING)
            continue;
        partner->presence = GONE;
        message->is_starved = partner->is_starved || partner->reader.message.failed;
        message->peer = partner->rank;
        message->data = NULL;
        message->length = 0;
        return DT_CONTROL_LOST;
    }
    return DT_CONTROL_NONE;
}

static dt_control_event_t control_receive(dt_control_t *ops, dt_control_message_t *message)
{
    shm_control_t *control = (shm_control_t *)ops;
    if (atomic_load_explicit(&control->has_queue, memory_order_relaxed))
        flush(control);
    if (read_rings(control, message))
        return DT_CONTROL_MESSAGE;
    if (!control->always_ask_base && ++control->turns < BASE_EVERY &&
        !atomic_load_explicit(&control->ask_base, memory_order_relaxed))
        return DT_CONTROL_NONE;
    control->turns = 0;
    atomic_store_explicit(&control->ask_base, 0, memory_order_relaxed);
    dt_control_event_t event = read_base(control, message);
    if (event != DT_CONTROL_NONE)
        return event;
    /* What a partner wrote before it was lost is in its ring by now. */
    if (read_rings(control, message)) {
        atomic_store_explicit(&control->ask_base, 1, memory_order_relaxed);
        return DT_CONTROL_MESSAGE;
    }
    return tell_lost(control, message);
}

static int has_news(shm_control_t *control)
{
    for (int i = 0; i < control->num_partners; i++) {
        if (dt_shm_ring_has_news(control->partners[i].reader.ring))
            return 1;
    }
    return 0;
}

/* May run beside the holder's calls: it reads what is [const], [shared] or [atomic]. */
static void control_wait(dt_control_t *ops, int64_t timeout_ns)
{
    shm_control_t *control = (shm_control_t *)ops;
    if (atomic_load_explicit(&control->has_queue, memory_order_relaxed) && timeout_ns > FLUSH_NS)
        timeout_ns = FLUSH_NS;
    atomic_fetch_add(control->dozing, 1);
    if (!has_news(control))
        control->base->ops->wait(control->base, timeout_ns);
    atomic_fetch_sub(control->dozing, 1);
    atomic_store_explicit(&control->ask_base, 1, memory_order_relaxed);
}

static void control_wake(dt_control_t *ops)
{
    shm_control_t *control = (shm_control_t *)ops;
    control->base->ops->wake(control->base);
}

/* Gives what is queued for full rings a second to get out. */
static void drain(shm_control_t *control)
{
    int64_t deadline_ns = dt_now_ns() + DT_NS_PER_S;
    while (atomic_load(&control->has_queue) && dt_now_ns() < deadline_ns) {
        flush(control);
        control->base->ops->wait(control->base, FLUSH_NS);
    }
}

static void control_destroy(dt_control_t *ops)
{
    shm_control_t *control = (shm_control_t *)ops;
    drain(control);
    control->base->ops->destroy(control->base);
    for (int i = 0; i < control->num_partners; i++) {
        dt_buffer_free(&control->partners[i].writer.queue);
        dt_buffer_free(&control->partners[i].reader.message);
    }
    dt_shm_node_free(control->node);
    dt_free(control->partners);
    dt_free(control);
}

static void control_forget(dt_control_t *ops)
{
    shm_control_t *control = (shm_control_t *)ops;
    if (control->base->ops->forget)
        control->base->ops->forget(control->base);
}

static const dt_control_ops_t control_ops = {
    .name = "shm",
    .send = control_send,
    .receive = control_receive,
    .wait = control_wait,
    .wake = control_wake,
    .destroy = control_destroy,
    .forget = control_forget,
};

static dt_shm_mail_t *mail_of(const dt_shm_node_t *node, int rank)
{
    return (dt_shm_mail_t *)(dt_shm_mapping_heap(node->mapping, rank) + DT_SHM_MAIL_OFFSET);
}

static void meet(partner_t *partner, int rank, dt_shm_ring_t *out, dt_shm_ring_t *in,
                 _Atomic int *dozing)
{
    partner->rank = rank;
    partner->writer.ring = out;
    partner->reader.ring = in;
    partner->dozing = dozing;
}

static void meet_all(shm_control_t *control, const dt_shm_node_t *node, const int *world_ranks)
{
    control->dozing = &mail_of(node, node->rank)->dozing;
    if (node->rank != 0) {
        dt_shm_mail_t *mail = mail_of(node, node->rank);
        meet(&control->partners[0], 0, &mail->up, &mail->down, &mail_of(node, 0)->dozing);
        return;
    }
    for (int i = 1; i < node->mapping->size; i++) {
        dt_shm_mail_t *mail = mail_of(node, i);
        meet(&control->partners[i - 1], world_ranks[i], &mail->down, &mail->up, &mail->dozing);
    }
}

dtrain_status_t dt_shm_control_create(const dt_shm_node_t *node, const int *world_ranks,
                                      int world_size, dt_control_t *base,
                                      dt_control_t **control_out)
{
    int size = node->mapping->size;
    shm_control_t *control = dt_calloc(1, sizeof *control);
    int num_partners = node->rank == 0 ? size - 1 : 1;
    partner_t *partners = dt_calloc((size_t)num_partners, sizeof *partners);
    dt_shm_node_t *own = dt_shm_node_create(node->mapping, node->rank);
    if (!control || !partners || !own) {
        dt_free(control);
        dt_free(partners);
        if (own)
            dt_shm_node_free(own);
        return dt_fail(DTRAIN_ERR_OUT_OF_MEMORY, "no memory for control messages in the node");
    }
    control->ops.ops = &control_ops;
    control->base = base;
    control->node = own;
    control->partners = partners;
    control->num_partners = num_partners;
    control->always_ask_base = node->rank == 0 && world_size > size;
    meet_all(control, node, world_ranks);
    *control_out = &control->ops;
    return DTRAIN_OK;
}
