/* fault.c - what is to go wrong: rules "operation:rank:nth:kind" in STANDIN_FAULT. The n-th call of
 * the operation (1 is the first) on that rank fails; kind is error, hang, oom, async, block, kill,
 * or a number of milliseconds of delay. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "standin.h"

#define RULES_MAX 16

typedef struct rule {
    char operation[64], kind[16];
    int rank, nth, seen;
} rule_t;

static rule_t rules[RULES_MAX]; /* [lock] */
static int num_rules;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;

int standin_rank(void)
{
    const char *names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (getenv(names[i]))
            return (int)strtol(getenv(names[i]), NULL, 10);
    }
    return 0;
}

long standin_setting(const char *name, long otherwise)
{
    const char *text = getenv(name);
    return text ? strtol(text, NULL, 0) : otherwise;
}

/* Copies the text up to `end`, or up to the next rule; where it goes on, or NULL. */
static const char *read_word(const char *at, char end, char *word, size_t cap)
{
    size_t length = at ? strcspn(at, end == ',' ? "," : ":,") : 0;
    if (length == 0 || length >= cap || (end == ':' && at[length] != ':'))
        return NULL;
    memcpy(word, at, length);
    word[length] = '\0';
    return at + length + (at[length] == end);
}

static void read_rules(void)
{
    const char *at = getenv("STANDIN_FAULT");
    while (at && *at && num_rules < RULES_MAX) {
        rule_t *rule = &rules[num_rules++];
        char rank[16], nth[16];
        const char *begin = at;
        at = read_word(at, ':', rule->operation, sizeof rule->operation);
        at = read_word(at, ':', rank, sizeof rank);
        at = read_word(at, ':', nth, sizeof nth);
        at = read_word(at, ',', rule->kind, sizeof rule->kind);
        if (!at) {
            fprintf(stderr, "STANDIN_FAULT: cannot read '%s'\n", begin);
            exit(2);
        }
        rule->rank = (int)strtol(rank, NULL, 10);
        rule->nth = (int)strtol(nth, NULL, 10);
    }
}

static standin_fault_t act(const char *kind)
{
    if (strcmp(kind, "error") == 0)
        return STANDIN_ERROR;
    if (strcmp(kind, "hang") == 0)
        return STANDIN_HANG;
    if (strcmp(kind, "oom") == 0)
        return STANDIN_OOM;
    if (strcmp(kind, "async") == 0)
        return STANDIN_ASYNC;
    if (strcmp(kind, "block") == 0)
        return STANDIN_BLOCK;
    if (strcmp(kind, "kill") == 0)
        raise(SIGKILL);
    usleep((useconds_t)strtol(kind, NULL, 10) * 1000);
    return STANDIN_NONE;
}

standin_fault_t standin_fault(const char *operation)
{
    char kind[16] = "";
    pthread_once(&once, read_rules);
    if (num_rules == 0)
        return STANDIN_NONE;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < num_rules; i++) {
        rule_t *rule = &rules[i];
        if (strcmp(rule->operation, operation) == 0 && rule->rank == standin_rank() &&
            ++rule->seen == rule->nth)
            strcpy(kind, rule->kind);
    }
    pthread_mutex_unlock(&lock);
    return kind[0] ? act(kind) : STANDIN_NONE;
}
