/* config_table.h - how the table of settings is made; only for config*.c and their tests. */
#ifndef DT_BASE_CONFIG_TABLE_H
#define DT_BASE_CONFIG_TABLE_H

#include <stddef.h>
#include <stdint.h>

#include "base/config.h"

typedef enum dt_setting_kind {
    DT_SETTING_BYTES = 1,    /* an integer of bytes */
    DT_SETTING_DURATION = 2, /* an integer of unit_ns */
    DT_SETTING_CHOICE = 3,   /* an enumerator, by name or number */
    DT_SETTING_WORD = 4,     /* one of a few words, kept as text */
    DT_SETTING_TEXT = 5      /* any text that fits */
} dt_setting_kind_t;

typedef struct dt_choice {
    const char *name; /* NULL ends the list */
    int64_t value;    /* DT_SETTING_CHOICE */
} dt_choice_t;

/*
 * One setting. Integers of the public struct mean: 0 the default, -1 none where may_be_off, else
 * a number from min to max. In dt_config_t nothing is left to interpret: a duration is in
 * nanoseconds, and default and none have become default_internal and off_internal.
 */
typedef struct dt_setting {
    const char *name; /* of the field; DTRAIN_ and its upper case are the variable */
    dt_setting_kind_t kind;
    int is_shared; /* all ranks take rank 0's */
    int may_be_off;
    size_t offset, size;                   /* in dtrain_config_t */
    size_t internal_offset, internal_size; /* in dt_config_t */
    const dt_choice_t *choices;
    int64_t unit_ns;
    int64_t min, max; /* in the field's unit */
    int64_t default_internal, off_internal;
    const char *default_text;
    const char *auto_word; /* text for the default where that is no number; or NULL */
    const char *help;
} dt_setting_t;

#define DT_SETTING_COUNT 19
extern const dt_setting_t dt_settings[DT_SETTING_COUNT];

#define DT_VARIABLE_MAX 64
#define DT_EXPECTED_MAX 160

/* The row of a field's name, or NULL. */
const dt_setting_t *dt_setting_find(const char *name);

/* The row whose name is most like `name`. */
const dt_setting_t *dt_setting_nearest(const char *name);

/* Writes the name of the environment's variable, and returns it. */
const char *dt_setting_variable(const dt_setting_t *setting, char variable[DT_VARIABLE_MAX]);

/* Writes what a value in text may be, as "a size such as 64MiB, from 1 to 64 GiB, or off". */
const char *dt_setting_expected(const dt_setting_t *setting, char expected[DT_EXPECTED_MAX]);

/* Writes a number of the field's unit for people, as "64 GiB" or "60 s". */
const char *dt_setting_show(const dt_setting_t *setting, int64_t value, char *text, size_t cap);

/* Integers of 4 or 8 bytes inside a struct. */
int64_t dt_setting_load(const void *base, size_t offset, size_t size);
void dt_setting_store(void *base, size_t offset, size_t size, int64_t value);

/* Reads `value` into the field of `config`. 0, or -1 when it is not what is expected; then
 * nothing is written. */
int dt_setting_parse(const dt_setting_t *setting, const char *value, dtrain_config_t *config);

/* 0 when the field of `config`, set by the program itself, is in range, else -1. */
int dt_setting_check(const dt_setting_t *setting, const dtrain_config_t *config);

/* The functions of config.h with another environment: "NAME=value", NULL at the end. */
dtrain_status_t dt_config_resolve_from(const dtrain_config_t *user, char *const *environment,
                                       dt_config_t *out);
int dt_config_launcher_size_from(char *const *environment, const char **variable);

#endif
