/*
 * detect_news.c - what a detector learns, and tells on. News is flooded: whoever learns something
 * new sends it over all its connections but the one that it came by, and what is known already is
 * dropped. So all ranks hear of it as long as the connections that are left join them.
 */
#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/text.h"
#include "comm/detect/detect_state.h"

#define NAMED_MAX 8 /* ranks of a lost node that are listed */
#define DIED "it died, or left without dtrain_shutdown"

/* How long the engine may take to take the news before those who wait are told past it: well below
 * the second that Open MPI's launcher gives survivors. */
#define OVERDUE_NS (DT_NS_PER_S / 2)

static void flood(dt_detector_t *detector, const dt_detect_message_t *message,
                  const dt_detect_link_t *from)
{
    for (int i = 0; i < detector->num_links; i++) {
        if (&detector->links[i] != from)
            dt_detect_link_send(&detector->links[i], message);
    }
}

/* The first end stands. 1 when this is it. */
static int publish(dt_detector_t *detector, const dt_detect_message_t *message)
{
    pthread_mutex_lock(&detector->lock);
    int is_first = detector->status == DTRAIN_OK;
    if (is_first) {
        detector->status = message->status;
        detector->end_rank = message->rank;
        dt_text_format(detector->text, sizeof detector->text, "%.*s", (int)message->text_length,
                       message->text);
    }
    pthread_mutex_unlock(&detector->lock);
    return is_first;
}

static void learn_end(dt_detector_t *detector, const dt_detect_message_t *message,
                      const dt_detect_link_t *from)
{
    dt_detect_rank_t *rank = &detector->ranks[message->rank];
    if (rank->is_ended || detector->is_over)
        return;
    rank->is_ended = 1;
    flood(detector, message, from);
    if (!publish(detector, message))
        return;
    detector->overdue_ns = dt_detect_now(detector) + OVERDUE_NS;
    atomic_store(&detector->has_news, 1);
    if (detector->hooks.notify)
        detector->hooks.notify(detector->hooks.context);
}

/* After an end nobody judges any more: what follows are the survivors leaving. */
static int has_ended(dt_detector_t *detector)
{
    pthread_mutex_lock(&detector->lock);
    int ended = detector->status != DTRAIN_OK;
    pthread_mutex_unlock(&detector->lock);
    return ended || detector->is_over;
}

static void end_with(dt_detector_t *detector, int rank, const char *text)
{
    dt_detect_message_t message = {.type = DT_DETECT_END,
                                   .epoch = detector->epoch,
                                   .rank = rank,
                                   .status = DTRAIN_ERR_RANK_LOST,
                                   .text = text,
                                   .text_length = strlen(text)};
    learn_end(detector, &message, NULL);
}

void dt_detect_lose(dt_detector_t *detector, int rank, const char *why)
{
    char who[128], last[256] = "", text[DT_DETECT_TEXT_MAX + 1];
    if (has_ended(detector))
        return;
    const dt_peer_t *peers = detector->topology.peers;
    if (detector->hooks.describe && peers[rank].node == peers[detector->topology.rank].node)
        detector->hooks.describe(detector->hooks.context, rank, last, sizeof last);
    dt_topology_describe(&detector->topology, rank, who, sizeof who);
    dt_text_format(text, sizeof text, "%s is lost: %s%s%s", who, why,
                   last[0] ? "; it was last " : "", last);
    end_with(detector, rank, text);
}

/* " with ranks 2, 3 and 6 more of its node", or nothing when it was alone. */
static void name_company(const dt_topology_t *topology, int leader, char *text, size_t cap)
{
    int count = 0;
    size_t length = 0;
    text[0] = '\0';
    for (int rank = leader + 1; rank < topology->size; rank++) {
        if (topology->peers[rank].node != topology->peers[leader].node)
            continue;
        if (count++ < NAMED_MAX)
            length +=
                dt_text_format(text + length, cap - length, "%s%d",
                               count == 1 ? " with all others of its node, rank " : ", ", rank);
    }
    if (count > NAMED_MAX)
        dt_text_format(text + length, cap - length, " and %d more", count - NAMED_MAX);
}

/* Its kernel no longer answers, so nobody there can be reached. */
static void lose_node(dt_detector_t *detector, int leader, int error)
{
    char who[128], company[192], text[DT_DETECT_TEXT_MAX + 1];
    if (has_ended(detector))
        return;
    dt_topology_describe(&detector->topology, leader, who, sizeof who);
    name_company(&detector->topology, leader, company, sizeof company);
    dt_text_format(text, sizeof text, "%s is lost%s: no answer over the network for %.3g s (%s)",
                   who, company, (double)detector->settings.timeout_ns / (double)DT_NS_PER_S,
                   strerror(error));
    end_with(detector, leader, text);
}

void dt_detect_link_ended(dt_detector_t *detector, dt_detect_link_t *link)
{
    if (link->has_left)
        return;
    switch (link->error) {
    case 0:
    case ECONNRESET:
    case EPIPE:
        dt_detect_lose(detector, link->rank, DIED);
        break;
    case EPROTO:
        dt_detect_lose(detector, link->rank, "its failure detector sent bytes that are no message");
        break;
    default:
        lose_node(detector, link->rank, link->error);
    }
}

/* A change of a rank's silence that is new here. 1 when it is. */
static int learn_silence(dt_detector_t *detector, int rank, uint32_t version, int64_t since_ns)
{
    dt_detect_rank_t *known = &detector->ranks[rank];
    pthread_mutex_lock(&detector->lock);
    int is_new = version > known->version;
    if (is_new) {
        known->version = version;
        known->since_ns = since_ns;
    }
    pthread_mutex_unlock(&detector->lock);
    return is_new;
}

static void log_silence(const dt_detector_t *detector, int rank, int is_silent)
{
    char who[128];
    dt_topology_describe(&detector->topology, rank, who, sizeof who);
    dt_log(DTRAIN_LOG_INFO, "detect", "%s is %s", who,
           is_silent ? "silent: stopped or stuck" : "back");
}

void dt_detect_note(dt_detector_t *detector, int rank, int is_silent, int64_t since_ns,
                    int64_t now_ns)
{
    uint32_t version = detector->ranks[rank].version;
    if ((version & 1) == (uint32_t)(is_silent != 0))
        return;
    learn_silence(detector, rank, version + 1, since_ns);
    log_silence(detector, rank, is_silent);
    dt_detect_message_t message = {.type = DT_DETECT_SILENCE,
                                   .epoch = detector->epoch,
                                   .rank = rank,
                                   .version = version + 1,
                                   .age_ms = (uint32_t)((now_ns - since_ns) / DT_NS_PER_MS)};
    flood(detector, &message, NULL);
}

static void hear_silence(dt_detector_t *detector, const dt_detect_link_t *from,
                         const dt_detect_message_t *message, int64_t now_ns)
{
    int64_t since_ns = now_ns - (int64_t)message->age_ms * DT_NS_PER_MS;
    if (learn_silence(detector, message->rank, message->version, since_ns))
        flood(detector, message, from);
}

/* Once all is over one word suffices, whoever says it. */
static void hear_leaving(dt_detector_t *detector, dt_detect_link_t *from,
                         const dt_detect_message_t *message)
{
    if (message->rank == from->rank)
        from->has_left = 1;
    if (!message->is_over || detector->is_over)
        return;
    detector->is_over = 1;
    flood(detector, message, from);
}

/* A beat is answered at once when one is due soon anyway, so that a rank wakes once for both. */
static void hear_beat(dt_detector_t *detector, int64_t now_ns)
{
    if (detector->beat_ns - now_ns >= detector->settings.heartbeat_ns / 2)
        return;
    detector->beat_ns = now_ns;
    detector->is_answering = 1;
}

void dt_detect_hear(dt_detector_t *detector, dt_detect_link_t *from,
                    const dt_detect_message_t *message, int64_t now_ns)
{
    from->heard_ns = now_ns;
    from->unanswered = 0;
    if (message->epoch != detector->epoch)
        return;
    switch (message->type) {
    case DT_DETECT_BEAT:
        hear_beat(detector, now_ns);
        break;
    case DT_DETECT_SILENCE:
        hear_silence(detector, from, message, now_ns);
        break;
    case DT_DETECT_END:
        learn_end(detector, message, from);
        break;
    case DT_DETECT_LEAVING:
        hear_leaving(detector, from, message);
        break;
    case DT_DETECT_ASK:
        dt_detect_hear_question(detector, from, message);
        break;
    case DT_DETECT_ANSWER:
        dt_detect_hear_answer(detector, message);
        break;
    }
}

void dt_detect_tell_own(dt_detector_t *detector)
{
    dt_detect_message_t message = {.type = DT_DETECT_END, .epoch = detector->epoch};
    pthread_mutex_lock(&detector->lock);
    int is_to_tell = detector->is_to_tell;
    detector->is_to_tell = 0;
    pthread_mutex_unlock(&detector->lock);
    /* From here on nobody changes what was published. */
    if (!is_to_tell || detector->ranks[detector->end_rank].is_ended)
        return;
    message.rank = detector->end_rank;
    message.status = detector->status;
    message.text = detector->text;
    message.text_length = strlen(detector->text);
    detector->ranks[message.rank].is_ended = 1;
    flood(detector, &message, NULL);
}

void dt_detect_say_leaving(dt_detector_t *detector, int is_over)
{
    dt_detect_message_t message = {.type = DT_DETECT_LEAVING,
                                   .epoch = detector->epoch,
                                   .rank = detector->topology.rank,
                                   .is_over = is_over};
    flood(detector, &message, NULL);
}
