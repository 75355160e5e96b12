/*
 * detect_ask.c - questions to all ranks that their detectors answer, whatever their engines do.
 *
 * A question is flooded, as news is; an answer goes back, link by link, the way the question came:
 * for each rank that asks, a detector keeps in mind where from. A leader answers for the ranks of
 * its node too, as far as it can (hooks.answer), so also for one that is stopped or has died.
 * Questions of one rank are numbered in the order in which they are sent.
 */
#include <string.h>

#include "comm/detect/detect_state.h"

/* An answer in the making. */
typedef struct answer {
    dt_detect_link_t *to;
    dt_detect_message_t message;
} answer_t;

static void send_line(answer_t *answer, const char *line, int is_last)
{
    answer->message.text = line;
    answer->message.text_length = strlen(line);
    answer->message.is_last = is_last;
    dt_detect_link_send(answer->to, &answer->message);
}

static void emit(void *context, const char *line)
{
    send_line(context, line, 0);
}

static void answer_for(dt_detector_t *detector, dt_detect_link_t *to,
                       const dt_detect_message_t *question, int rank)
{
    answer_t answer = {.to = to,
                       .message = {.type = DT_DETECT_ANSWER,
                                   .epoch = detector->epoch,
                                   .rank = rank,
                                   .asker = question->rank,
                                   .number = question->number}};
    detector->hooks.answer(detector->hooks.context, rank, question->what, emit, &answer);
    send_line(&answer, "", 1);
}

/* Where the ranks of a node see each other, the leader answers for all of them; to one of them
 * nobody needs to. */
static void answer_all(dt_detector_t *detector, dt_detect_link_t *to,
                       const dt_detect_message_t *question)
{
    const dt_topology_t *topology = &detector->topology;
    const dt_peer_t *peers = topology->peers;
    int node = peers[topology->rank].node;
    if (!detector->hooks.answer)
        return;
    if (!detector->hooks.sees_node) {
        answer_for(detector, to, question, topology->rank);
        return;
    }
    if (topology->local_rank != 0 || peers[question->rank].node == node)
        return;
    for (int rank = 0; rank < topology->size; rank++) {
        if (peers[rank].node == node)
            answer_for(detector, to, question, rank);
    }
}

static void flood_question(dt_detector_t *detector, const dt_detect_message_t *question,
                           const dt_detect_link_t *from)
{
    for (int i = 0; i < detector->num_links; i++) {
        if (&detector->links[i] != from)
            dt_detect_link_send(&detector->links[i], question);
    }
}

void dt_detect_hear_question(dt_detector_t *detector, dt_detect_link_t *from,
                             const dt_detect_message_t *question)
{
    dt_detect_rank_t *asker = &detector->ranks[question->rank];
    if (question->rank == detector->topology.rank || question->number <= asker->question)
        return;
    asker->question = question->number;
    asker->way = from;
    flood_question(detector, question, from);
    answer_all(detector, from, question);
}

static void take_answer(dt_detector_t *detector, const dt_detect_message_t *answer)
{
    char line[DT_DETECT_LINE_MAX + 1];
    if (!detector->hooks.answered)
        return;
    memcpy(line, answer->text, answer->text_length);
    line[answer->text_length] = '\0';
    detector->hooks.answered(detector->hooks.context, answer->rank, answer->number,
                             answer->is_last ? NULL : line);
}

void dt_detect_hear_answer(dt_detector_t *detector, const dt_detect_message_t *answer)
{
    const dt_detect_rank_t *asker = &detector->ranks[answer->asker];
    if (answer->asker == detector->topology.rank)
        take_answer(detector, answer);
    else if (asker->way)
        dt_detect_link_send(asker->way, answer);
}

/* The oldest of the questions that are to be sent; number 0: there is none. */
static void take_wanted(dt_detector_t *detector, dt_detect_message_t *question)
{
    pthread_mutex_lock(&detector->lock);
    question->number = 0;
    for (int what = 0; what < DT_DETECTOR_QUESTIONS; what++) {
        uint32_t number = detector->wanted[what];
        if (number != 0 && (question->number == 0 || number < question->number)) {
            question->number = number;
            question->what = what;
        }
    }
    if (question->number != 0)
        detector->wanted[question->what] = 0;
    pthread_mutex_unlock(&detector->lock);
}

void dt_detect_ask_own(dt_detector_t *detector)
{
    dt_detect_message_t question = {
        .type = DT_DETECT_ASK, .epoch = detector->epoch, .rank = detector->topology.rank};
    for (take_wanted(detector, &question); question.number != 0; take_wanted(detector, &question))
        flood_question(detector, &question, NULL);
}

void dt_detector_ask(dt_detector_t *detector, int what, _Atomic uint32_t *number)
{
    pthread_mutex_lock(&detector->lock);
    detector->wanted[what] = ++detector->num_questions;
    atomic_store(number, detector->num_questions);
    pthread_mutex_unlock(&detector->lock);
    dt_detect_wake(detector);
}
