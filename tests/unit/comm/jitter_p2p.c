#include "jitter_p2p.h"

#include <stdlib.h>

#include "base/status.h"
#include "test_random.h"

typedef struct borrowed {
    int is_used, is_send;
    const uint8_t *data;
    size_t length;
    uint64_t sum; /* of a send's bytes when it was begun */
    dt_p2p_request_t request;
} borrowed_t;

typedef struct jitter_p2p {
    dt_p2p_t base;
    dt_p2p_t *inner;
    uint64_t random;
    int64_t tests_left;
    jitter_report_t *report;
    borrowed_t *borrowed;
    size_t capacity;
} jitter_p2p_t;

static uint64_t sum_of(const borrowed_t *borrowed)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < borrowed->length; i++)
        sum = sum * 31 + borrowed->data[i];
    return sum;
}

static int overlap(const borrowed_t *a, const borrowed_t *b)
{
    return a->data < b->data + b->length && b->data < a->data + a->length;
}

static size_t find_free(jitter_p2p_t *jitter)
{
    size_t at = 0;
    while (at < jitter->capacity && jitter->borrowed[at].is_used)
        at++;
    if (at == jitter->capacity) {
        size_t capacity = jitter->capacity ? 2 * jitter->capacity : 64;
        borrowed_t *grown = realloc(jitter->borrowed, capacity * sizeof *grown);
        if (!grown)
            abort();
        for (size_t i = jitter->capacity; i < capacity; i++)
            grown[i] = (borrowed_t){0};
        jitter->borrowed = grown;
        jitter->capacity = capacity;
    }
    return at;
}

static borrowed_t *borrow(jitter_p2p_t *jitter, int is_send, const void *data, size_t length,
                          dt_p2p_request_t *request)
{
    size_t at = find_free(jitter);
    borrowed_t *made = &jitter->borrowed[at];
    *made = (borrowed_t){.is_used = 1, .is_send = is_send, .data = data, .length = length};
    if (is_send)
        made->sum = sum_of(made);
    for (size_t i = 0; i < jitter->capacity; i++) {
        const borrowed_t *other = &jitter->borrowed[i];
        if (i != at && other->is_used && !(is_send && other->is_send) && overlap(made, other))
            jitter->report->num_overlaps++;
    }
    jitter->report->num_messages++;
    jitter->report->num_empty += length == 0;
    if ((int64_t)length > jitter->report->longest)
        jitter->report->longest = (int64_t)length;
    *request = (dt_p2p_request_t){{at + 1, 0}};
    return made;
}

static dtrain_status_t jitter_send(dt_p2p_t *p2p, int peer, int tag, const void *data,
                                   size_t length, dt_p2p_request_t *request)
{
    jitter_p2p_t *jitter = (jitter_p2p_t *)p2p;
    borrowed_t *made = borrow(jitter, 1, data, length, request);
    return jitter->inner->ops->send(jitter->inner, peer, tag, data, length, &made->request);
}

static dtrain_status_t jitter_receive(dt_p2p_t *p2p, int peer, int tag, void *data, size_t length,
                                      dt_p2p_request_t *request)
{
    jitter_p2p_t *jitter = (jitter_p2p_t *)p2p;
    borrowed_t *made = borrow(jitter, 0, data, length, request);
    return jitter->inner->ops->receive(jitter->inner, peer, tag, data, length, &made->request);
}

static dtrain_status_t jitter_test(dt_p2p_t *p2p, dt_p2p_request_t *request)
{
    jitter_p2p_t *jitter = (jitter_p2p_t *)p2p;
    if (request->word[0] == 0)
        return DTRAIN_OK;
    if (jitter->tests_left >= 0 && jitter->tests_left-- == 0)
        return dt_fail(DTRAIN_ERR_COMMUNICATION, "the cable was pulled");
    if (test_random(&jitter->random) % 3 == 0)
        return DTRAIN_IN_PROGRESS;
    borrowed_t *borrowed = &jitter->borrowed[request->word[0] - 1];
    dtrain_status_t status = jitter->inner->ops->test(jitter->inner, &borrowed->request);
    if (status != DTRAIN_OK)
        return status;
    if (borrowed->is_send && borrowed->sum != sum_of(borrowed))
        jitter->report->num_scribbles++;
    borrowed->is_used = 0;
    *request = (dt_p2p_request_t){{0}};
    return DTRAIN_OK;
}

static void jitter_destroy(dt_p2p_t *p2p, int clean)
{
    jitter_p2p_t *jitter = (jitter_p2p_t *)p2p;
    /* What is borrowed must still be there: a sanitizer sees if it is not. */
    for (size_t i = 0; i < jitter->capacity; i++) {
        if (jitter->borrowed[i].is_used) {
            jitter->report->num_left++;
            jitter->report->last_sum = sum_of(&jitter->borrowed[i]);
        }
    }
    jitter->inner->ops->destroy(jitter->inner, clean);
    free(jitter->borrowed);
    free(jitter);
}

static const dt_p2p_ops_t jitter_ops = {
    .name = "jitter",
    .send = jitter_send,
    .receive = jitter_receive,
    .test = jitter_test,
    .destroy = jitter_destroy,
};

dt_p2p_t *jitter_p2p_create(dt_p2p_t *inner, uint64_t seed, int64_t fail_after,
                            jitter_report_t *report)
{
    jitter_p2p_t *jitter = calloc(1, sizeof *jitter);
    if (!jitter)
        return NULL;
    jitter->base = (dt_p2p_t){&jitter_ops, inner->rank, inner->size};
    jitter->inner = inner;
    jitter->random = seed;
    jitter->tests_left = fail_after;
    jitter->report = report;
    *report = (jitter_report_t){0};
    return &jitter->base;
}
