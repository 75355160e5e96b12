#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "core/negotiator_state.h"
#include "reduce/codec.h"

/* Operations that are named at a time. */
#define WARNINGS_MAX 16

/* Copies a definition; of a long one, what is around the place where the other begins to differ. */
static void copy_definition(const char *definition, const char *other, char *text, size_t cap)
{
    size_t same = 0, length = strlen(definition);
    while (same < length && definition[same] == other[same])
        same++;
    size_t from = length > cap - 8 && same > cap / 2 ? same - cap / 2 : 0;
    while (from > 0 && definition[from] != ' ')
        from--;
    snprintf(text, cap, "%s%.*s%s", from > 0 ? "…" : "", (int)(cap - 8), definition + from,
             length - from > cap - 8 ? "…" : "");
}

static const char *variant_difference(const dt_variant_t *a, const dt_variant_t *b, char *a_value,
                                      char *b_value, size_t cap)
{
    if (!a->definition || !b->definition) {
        const char *what =
            dt_signature_difference(&a->signature, &b->signature, a_value, b_value, cap);
        if (what || dt_stamp_equal(a->stamp, b->stamp))
            return what;
        dt_stamp_describe(a->stamp, b->stamp, a_value, cap);
        dt_stamp_describe(b->stamp, a->stamp, b_value, cap);
        return "step";
    }
    copy_definition(a->definition, b->definition, a_value, cap);
    copy_definition(b->definition, a->definition, b_value, cap);
    return "process set";
}

void dt_tally_describe_mismatch(const dt_tally_t *tally, const dt_variant_t *first,
                                const dt_variant_t *second, char *text, size_t cap)
{
    char value[300], first_value[300], ranks[128], name[DT_KEY_TEXT_MAX];
    const char *what = variant_difference(first, second, first_value, value, sizeof value);
    int used = snprintf(text, cap, "%s %s: the ranks' %ss differ: %s: %s", dt_tally_kind(tally),
                        dt_tally_what(tally, name), what,
                        dt_rank_set_describe(&first->who, 0, ranks, sizeof ranks), first_value);
    for (const dt_variant_t *other = second;
         other < tally->variants + tally->num_variants && used < (int)cap; other++) {
        const char *field = other->who.count == 0 ? NULL
                                                  : variant_difference(first, other, first_value,
                                                                       value, sizeof value);
        if (field && strcmp(field, what) == 0)
            used += snprintf(text + used, cap - (size_t)used, "; %s: %s",
                             dt_rank_set_describe(&other->who, 0, ranks, sizeof ranks), value);
    }
}

int dt_tally_describe_absence(const dt_tally_t *tally, const dt_variant_t *agreed, char *text,
                              size_t cap)
{
    const dt_signature_t *signature = &agreed->signature;
    char ranks[128], what[DT_KEY_TEXT_MAX];
    if (!tally->absent.bits || tally->absent.count == 0)
        return 0;
    int root_gives = signature->kind == DT_KIND_BROADCAST || signature->kind == DT_KIND_SCATTER;
    if (root_gives && dt_rank_set_has(&tally->absent, signature->root)) {
        snprintf(text, cap, "%s %s: its root, rank %d, has joined", dt_tally_kind(tally),
                 dt_tally_what(tally, what), signature->root);
        return 1;
    }
    if (dt_kind_traits(signature->kind)->reduces && signature->op == DTRAIN_OP_PRODUCT &&
        signature->prescale != 1) {
        snprintf(text, cap,
                 "%s %s: a product with a prescale has nothing to put in for a rank that has "
                 "joined: %s",
                 dt_tally_kind(tally), dt_tally_what(tally, what),
                 dt_rank_set_describe(&tally->absent, 0, ranks, sizeof ranks));
        return 1;
    }
    if (signature->kind == DT_KIND_COLLECT) {
        snprintf(text, cap, "%s %s: each rank has a part of it, and some have joined: %s",
                 dt_tally_kind(tally), dt_tally_what(tally, what),
                 dt_rank_set_describe(&tally->absent, 0, ranks, sizeof ranks));
        return 1;
    }
    if (signature->codec[0] && !dt_codec_is_own(signature->codec)) {
        snprintf(text, cap,
                 "%s %s: codec %s is the program's own, and not known where a rank has joined: %s",
                 dt_tally_kind(tally), dt_tally_what(tally, what), signature->codec,
                 dt_rank_set_describe(&tally->absent, 0, ranks, sizeof ranks));
        return 1;
    }
    return 0;
}

static void warn(dt_negotiator_t *negotiator, dt_tally_t *tally, int64_t now_ns)
{
    char missing[256], ready[256], name[DT_KEY_TEXT_MAX], what[320] = "";
    const dt_variant_t *first, *second;
    dt_tally_ready(tally, &first, &second);
    if (first)
        dt_signature_describe(&first->signature, what, sizeof what);
    dt_log(DTRAIN_LOG_WARN, "core", "%s %s%s%s waits since %.1f s for %s (of %d); submitted by %s",
           dt_tally_kind(tally), dt_tally_what(tally, name), *what ? " " : "", what,
           (double)(now_ns - tally->since_ns) / (double)DT_NS_PER_S,
           dt_negotiator_describe_missing(negotiator, tally, missing, sizeof missing),
           tally->set->size, dt_rank_set_describe(&tally->ready, 0, ready, sizeof ready));
}

int64_t dt_negotiator_warn(dt_negotiator_t *negotiator, int64_t after_ns, int64_t now_ns,
                           dt_rank_set_t *missing)
{
    int64_t next = DT_NEVER;
    int num_warned = 0;
    if (after_ns == DT_NEVER)
        return next;
    for (dt_tally_t *tally = negotiator->waiting.first; tally; tally = tally->next) {
        if (tally->is_join)
            continue; /* to wait is what it is for */
        if (tally->warn_ns == 0)
            tally->warn_ns = tally->since_ns + after_ns;
        if (tally->warn_ns <= now_ns) {
            if (num_warned++ < WARNINGS_MAX)
                warn(negotiator, tally, now_ns);
            if (!tally->is_held)
                dt_rank_set_unite(missing, dt_negotiator_missing(negotiator, tally));
            tally->warn_ns = now_ns + (now_ns - tally->since_ns);
        }
        if (tally->warn_ns < next)
            next = tally->warn_ns;
    }
    if (num_warned > WARNINGS_MAX)
        dt_log(DTRAIN_LOG_WARN, "core", "%d more operations wait", num_warned - WARNINGS_MAX);
    return next;
}
