#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "negotiator_world.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"

/* Backends are needed only to be there: no data move. */
static void free_backend(dt_backend_t *backend, int clean)
{
    (void)clean;
    dt_free(backend);
}

static dtrain_status_t make_backend(dt_backend_t *backend, const int *ranks, int num_ranks, int set,
                                    dt_backend_t **made)
{
    static const dt_backend_ops_t ops = {
        .name = "none", .destroy = free_backend, .subset = make_backend};
    (void)backend, (void)ranks, (void)num_ranks, (void)set;
    *made = dt_calloc(1, sizeof **made);
    assert_non_null(*made);
    (*made)->ops = &ops;
    return DTRAIN_OK;
}

void world_open(negotiator_world_t *world, int size)
{
    memset(world, 0, sizeof *world);
    dt_backend_t *none;
    assert_int_equal(make_backend(NULL, NULL, 0, 0, &none), DTRAIN_OK);
    world->joined.backend = none;
    dt_peer_t *peers = dt_calloc((size_t)size, sizeof *peers);
    assert_non_null(peers);
    assert_int_equal(dt_topology_make(&world->joined.topology, 0, size, peers), DTRAIN_OK);
    world->topology = world->joined.topology;
    dt_plan_policy_t policy = {.threshold = 1};
    assert_int_equal(dt_psets_init(&world->psets, &world->joined, &policy, NULL, NULL, NULL, NULL),
                     DTRAIN_OK);
    world->negotiator = dt_negotiator_create(&world->joined.topology, &world->psets);
    assert_non_null(world->negotiator);
    world->now_ns = 1000;
    world->room = INT64_MAX;
}

void world_close(negotiator_world_t *world)
{
    dt_negotiator_free(world->negotiator);
    dt_psets_leave(&world->psets, 1);
    dt_psets_free(&world->psets);
    dt_world_close(&world->joined, 1);
    dt_buffer_free(&world->report);
    dt_buffer_free(&world->part);
    dt_buffer_free(&world->verdict);
}

dtrain_pset_t add_pset(negotiator_world_t *world, const int *ranks, int n)
{
    int32_t id = -1;
    assert_int_equal(dt_psets_add(&world->psets, ranks, n, &id), DTRAIN_OK);
    return id;
}

dt_signature_t allreduce_of(int64_t count)
{
    dt_signature_t signature = {.kind = DT_KIND_ALLREDUCE,
                                .dtype = DTRAIN_DTYPE_F32,
                                .ndim = 1,
                                .prescale = 1,
                                .postscale = 1,
                                .shape = {count}};
    return signature;
}

static dtrain_status_t send(negotiator_world_t *world, int rank)
{
    return dt_negotiator_report(world->negotiator, rank, world->report.data, world->report.length,
                                world->now_ns);
}

/* Begins a report of bits, words of them from `first` on. */
static dt_buffer_t *begin_report(negotiator_world_t *world, uint32_t first, uint32_t words)
{
    dt_buffer_clear(&world->report);
    dt_put_u32(&world->report, first);
    dt_put_u32(&world->report, words);
    return &world->report;
}

dtrain_status_t try_ready(negotiator_world_t *world, int rank, uint32_t id)
{
    dt_buffer_t *report = begin_report(world, id / 64, 1);
    dt_put_u64(report, UINT64_C(1) << id % 64);
    dt_put_u32(report, 0); /* stamped ones */
    dt_put_u32(report, 0); /* requests */
    dt_put_u32(report, 0); /* withdrawals */
    return send(world, rank);
}

dtrain_status_t try_stamped(negotiator_world_t *world, int rank, uint32_t id, dt_stamp_t stamp)
{
    dt_buffer_t *report = begin_report(world, 0, 0);
    dt_put_u32(report, 1);
    dt_put_u32(report, id);
    dt_put_stamp(report, stamp);
    dt_put_u32(report, 0);
    dt_put_u32(report, 0);
    return send(world, rank);
}

static dtrain_status_t try_request(negotiator_world_t *world, int rank, const dt_request_t *request)
{
    dt_buffer_t *report = begin_report(world, 0, 0);
    dt_put_u32(report, 0);
    dt_put_u32(report, 1);
    dt_put_request(report, request);
    dt_put_u32(report, 0);
    return send(world, rank);
}

void report_new_stamped(negotiator_world_t *world, int rank, const char *name,
                        const dt_signature_t *signature, dt_stamp_t stamp)
{
    dt_request_t request = {.name = name,
                            .name_length = strlen(name),
                            .status = DTRAIN_OK,
                            .signature = *signature,
                            .stamp = stamp};
    assert_int_equal(try_request(world, rank, &request), DTRAIN_OK);
}

dtrain_status_t try_new(negotiator_world_t *world, int rank, const char *name,
                        const dt_signature_t *signature)
{
    dt_request_t request = {
        .name = name, .name_length = strlen(name), .status = DTRAIN_OK, .signature = *signature};
    return try_request(world, rank, &request);
}

void report_new(negotiator_world_t *world, int rank, const char *name,
                const dt_signature_t *signature)
{
    assert_int_equal(try_new(world, rank, name, signature), DTRAIN_OK);
}

void report_ready(negotiator_world_t *world, int rank, uint32_t id)
{
    assert_int_equal(try_ready(world, rank, id), DTRAIN_OK);
}

void report_stamped(negotiator_world_t *world, int rank, uint32_t id, dt_stamp_t stamp)
{
    assert_int_equal(try_stamped(world, rank, id, stamp), DTRAIN_OK);
}

void report_refused(negotiator_world_t *world, int rank, const char *name, dtrain_status_t status,
                    const char *text)
{
    dt_request_t request = {.name = name,
                            .name_length = strlen(name),
                            .status = status,
                            .text = text,
                            .text_length = strlen(text)};
    assert_int_equal(try_request(world, rank, &request), DTRAIN_OK);
}

void report_withdrawn(negotiator_world_t *world, int rank, const char *name, double seconds)
{
    dt_buffer_t *report = begin_report(world, 0, 0);
    dt_put_u32(report, 0);
    dt_put_u32(report, 0);
    dt_put_u32(report, 1);
    dt_put_f64(report, seconds);
    dt_put_text(report, name, strlen(name));
    assert_int_equal(send(world, rank), DTRAIN_OK);
}

static void take_entry(dt_reader_t *reader, int size, entry_t *out)
{
    dt_entry_t entry;
    assert_int_equal(dt_get_entry(reader, &entry), 0);
    memset(out, 0, sizeof *out);
    out->kind = entry.kind;
    out->id = entry.id;
    out->step = entry.step;
    out->status = (dtrain_status_t)entry.status;
    out->signature = entry.signature;
    snprintf(out->name, sizeof out->name, "%.*s", (int)entry.name_length,
             entry.name ? entry.name : "");
    snprintf(out->text, sizeof out->text, "%.*s", (int)entry.text_length,
             entry.text ? entry.text : "");
    for (int rank = 0; rank < size; rank++)
        out->absent |= (uint64_t)dt_entry_excludes(&entry, rank) << rank;
}

/* Takes a message apart. */
static int take_entries(negotiator_world_t *world, const dt_buffer_t *message, dt_message_t type)
{
    dt_reader_t reader = dt_reader_make(message->data, message->length);
    assert_int_equal(dt_get_header(&reader), type);
    world->num_entries = (int)dt_get_u32(&reader);
    assert_in_range(world->num_entries, 1, ENTRIES_MAX);
    for (int i = 0; i < world->num_entries; i++)
        take_entry(&reader, world->topology.size, &world->entries[i]);
    assert_true(reader.at == reader.end);
    return world->num_entries;
}

int take_verdict(negotiator_world_t *world)
{
    dt_buffer_clear(&world->verdict);
    world->num_entries =
        (int)dt_negotiator_verdict(world->negotiator, world->room, &world->verdict);
    if (world->num_entries == 0) {
        assert_int_equal(world->verdict.length, 0);
        return 0;
    }
    take_entries(world, &world->verdict, DT_MESSAGE_VERDICT);
    return world->num_entries;
}

int take_part(negotiator_world_t *world, int rank)
{
    if (!dt_negotiator_part(world->negotiator, rank, &world->verdict, &world->part))
        return take_entries(world, &world->verdict, DT_MESSAGE_VERDICT);
    if (world->part.length == 0)
        return 0;
    return take_entries(world, &world->part, DT_MESSAGE_PART);
}

const entry_t *take_one(negotiator_world_t *world)
{
    assert_int_equal(take_verdict(world), 1);
    return &world->entries[0];
}

const entry_t *agree(negotiator_world_t *world, const char *name, const dt_signature_t *signature)
{
    for (int rank = 0; rank < world->topology.size; rank++)
        report_new(world, rank, name, signature);
    return take_one(world);
}
