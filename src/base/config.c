#include "base/config.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/config_table.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/status.h"

#define PREFIX "DTRAIN_"
#define FAULT_VARIABLE "DTRAIN_FAULT"
#define PREFIX_LENGTH (sizeof PREFIX - 1)

/* The sizes that dtrain_config_t had in the versions so far; fields are only ever appended. */
static int is_known_size(size_t struct_size)
{
    return struct_size == sizeof(dtrain_config_t);
}

static dtrain_status_t check_struct(const dtrain_config_t *config)
{
    if (!config)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "config is NULL");
    if (!is_known_size(config->struct_size))
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "config.struct_size is %u, expected %zu: set it to "
                       "sizeof(dtrain_config_t), or call dtrain_config_init",
                       (unsigned)config->struct_size, sizeof(dtrain_config_t));
    return DTRAIN_OK;
}

dtrain_status_t dt_config_init(dtrain_config_t *config, size_t struct_size)
{
    if (!config)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "config is NULL");
    if (!is_known_size(struct_size))
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT,
                       "struct_size is %zu, but dtrain_config_t has %zu bytes in this libdtrain",
                       struct_size, sizeof(dtrain_config_t));
    memset(config, 0, struct_size);
    config->struct_size = (uint32_t)struct_size;
    return DTRAIN_OK;
}

/* `who` is the variable or the field. */
static dtrain_status_t fail_value(const dt_setting_t *setting, const char *who, const char *value)
{
    char expected[DT_EXPECTED_MAX];
    return dt_fail(DTRAIN_ERR_CONFIG, "%s='%.64s': expected %s", who, value,
                   dt_setting_expected(setting, expected));
}

dtrain_status_t dt_config_set(dtrain_config_t *config, const char *key, const char *value)
{
    dtrain_status_t status = check_struct(config);
    if (status != DTRAIN_OK)
        return status;
    if (!key || !value)
        return dt_fail(DTRAIN_ERR_INVALID_ARGUMENT, "%s is NULL", key ? "value" : "key");
    const dt_setting_t *setting = dt_setting_find(key);
    if (!setting)
        return dt_fail(DTRAIN_ERR_CONFIG, "there is no setting '%.64s'; the nearest is '%s'", key,
                       dt_setting_nearest(key)->name);
    if (dt_setting_parse(setting, value, config) != 0)
        return fail_value(setting, setting->name, value);
    return DTRAIN_OK;
}

/* The value of a variable, or NULL. */
static const char *get(char *const *environment, const char *name)
{
    size_t length = strlen(name);
    for (; environment && *environment; environment++) {
        if (strncmp(*environment, name, length) == 0 && (*environment)[length] == '=')
            return *environment + length + 1;
    }
    return NULL;
}

/* A field that the program set to a value out of range. */
static dtrain_status_t fail_field(const dt_setting_t *setting, const dtrain_config_t *config)
{
    char who[DT_VARIABLE_MAX];
    char expected[DT_EXPECTED_MAX];
    snprintf(who, sizeof who, "config.%s", setting->name);
    if (setting->kind == DT_SETTING_WORD || setting->kind == DT_SETTING_TEXT) {
        const char *text = (const char *)config + setting->offset;
        return dt_fail(DTRAIN_ERR_CONFIG, "%s='%.*s': expected %s", who, (int)setting->size, text,
                       dt_setting_expected(setting, expected));
    }
    long long value = dt_setting_load(config, setting->offset, setting->size);
    if (setting->kind == DT_SETTING_CHOICE)
        return dt_fail(DTRAIN_ERR_CONFIG, "%s=%lld: expected %s", who, value,
                       dt_setting_expected(setting, expected));
    return dt_fail(DTRAIN_ERR_CONFIG, "%s=%lld: expected %lld to %lld, 0 for the default%s", who,
                   value, (long long)setting->min, (long long)setting->max,
                   setting->may_be_off ? ", or -1 for off" : "");
}

/* Lays the environment over the fields of `config` and checks what stands there then. */
static dtrain_status_t merge(dtrain_config_t *config, char *const *environment)
{
    for (int i = 0; i < DT_SETTING_COUNT; i++) {
        const dt_setting_t *setting = &dt_settings[i];
        char variable[DT_VARIABLE_MAX];
        const char *value = get(environment, dt_setting_variable(setting, variable));
        if (value && dt_setting_parse(setting, value, config) != 0)
            return fail_value(setting, variable, value);
        if (!value && dt_setting_check(setting, config) != 0)
            return fail_field(setting, config);
    }
    return DTRAIN_OK;
}

static int64_t internal_number(const dt_setting_t *setting, int64_t value)
{
    if (setting->kind == DT_SETTING_CHOICE)
        return value == 0 ? setting->default_internal : value;
    if (value == 0)
        return setting->default_internal;
    if (value == -1)
        return setting->off_internal;
    return setting->kind == DT_SETTING_DURATION ? value * setting->unit_ns : value;
}

static void convert(const dt_setting_t *setting, const dtrain_config_t *config, dt_config_t *out)
{
    const char *text = (const char *)config + setting->offset;
    char *internal = (char *)out + setting->internal_offset;
    if (setting->kind == DT_SETTING_WORD && text[0] == '\0')
        text = setting->default_text;
    if (setting->kind == DT_SETTING_WORD || setting->kind == DT_SETTING_TEXT) {
        strncpy(internal, text, setting->internal_size);
        return;
    }
    int64_t value = dt_setting_load(config, setting->offset, setting->size);
    dt_setting_store(out, setting->internal_offset, setting->internal_size,
                     internal_number(setting, value));
}

/* Variables with our prefix that others than this table read. */
static int is_read_elsewhere(const char *name)
{
    static const char *const names[] = {"DTRAIN_LIBRARY", FAULT_VARIABLE};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(names[i], name) == 0)
            return 1;
    }
    return 0;
}

static int is_setting(const char *name)
{
    char variable[DT_VARIABLE_MAX];
    for (int i = 0; i < DT_SETTING_COUNT; i++) {
        if (strcmp(dt_setting_variable(&dt_settings[i], variable), name) == 0)
            return 1;
    }
    return 0;
}

/* A misspelt variable would have no effect and nobody would see why. */
static void warn_unknown(char *const *environment)
{
    for (; environment && *environment; environment++) {
        char name[2 * DT_VARIABLE_MAX];
        char nearest[DT_VARIABLE_MAX];
        if (strncmp(*environment, PREFIX, PREFIX_LENGTH) != 0)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(*environment, "="), *environment);
        if (is_setting(name) || is_read_elsewhere(name))
            continue;
        dt_setting_variable(dt_setting_nearest(name + PREFIX_LENGTH), nearest);
        dt_log(DTRAIN_LOG_WARN, "config",
               "the environment sets %s, which is not a setting; the nearest is %s", name, nearest);
    }
}

/* The rank that the launcher gave this process; 0 without one. */
static int launcher_rank(char *const *environment)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *text = get(environment, names[i]);
        if (text)
            return (int)strtol(text, NULL, 10);
    }
    return 0;
}

/* Fault points are for tests, so their rule is no setting. */
static dtrain_status_t arm_fault(char *const *environment)
{
    const char *rule = get(environment, FAULT_VARIABLE);
    return rule ? dt_fault_arm(rule, launcher_rank(environment)) : DTRAIN_OK;
}

dtrain_status_t dt_config_resolve_from(const dtrain_config_t *user, char *const *environment,
                                       dt_config_t *out)
{
    dtrain_config_t config = {.struct_size = sizeof config};
    if (user) {
        dtrain_status_t status = check_struct(user);
        if (status != DTRAIN_OK)
            return status;
        memcpy(&config, user, user->struct_size);
    }
    dtrain_status_t status = merge(&config, environment);
    if (status != DTRAIN_OK)
        return status;
    memset(out, 0, sizeof *out); /* padding too: it is sent to other ranks */
    for (int i = 0; i < DT_SETTING_COUNT; i++)
        convert(&dt_settings[i], &config, out);
    dt_log_set_level(out->log_level);
    warn_unknown(environment);
    return arm_fault(environment);
}

dtrain_status_t dt_config_resolve(const dtrain_config_t *user, dt_config_t *out)
{
    return dt_config_resolve_from(user, environ, out);
}

void dt_config_faulty(dt_config_t *config, dtrain_status_t fault)
{
    const dtrain_config_t defaults = {.struct_size = sizeof defaults};
    memset(config, 0, sizeof *config);
    for (int i = 0; i < DT_SETTING_COUNT; i++)
        convert(&dt_settings[i], &defaults, config);
    config->fault = fault;
}

void dt_config_adopt_shared(dt_config_t *config, const dt_config_t *rank0)
{
    for (int i = 0; i < DT_SETTING_COUNT; i++) {
        const dt_setting_t *setting = &dt_settings[i];
        char *mine = (char *)config + setting->internal_offset;
        const char *theirs = (const char *)rank0 + setting->internal_offset;
        if (!setting->is_shared || memcmp(mine, theirs, setting->internal_size) == 0)
            continue;
        dt_log(DTRAIN_LOG_WARN, "config",
               "%s differs from rank 0's; all ranks must share it, so rank 0's is used",
               setting->name);
        memcpy(mine, theirs, setting->internal_size);
    }
}

/* A count of processes; 0 when the variable is missing or is no positive number. */
static int get_count(char *const *environment, const char *name)
{
    const char *text = get(environment, name);
    if (!text || *text < '0' || *text > '9')
        return 0;
    char *end;
    long count = strtol(text, &end, 10);
    return *end == '\0' && count > 0 && count <= INT32_MAX ? (int)count : 0;
}

/*
 * A rank by PMIx or PMI without a size is Slurm's srun, whose own variables have the size. Those
 * alone mean nothing: every process inside an sbatch script sees them.
 */
static const char *const pmi_ranks[] = {"PMIX_RANK", "PMI_RANK"};

int dt_config_launcher_size_from(char *const *environment, const char **variable)
{
    static const char *const sizes[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};
    static const char *const slurm_sizes[] = {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"};
    for (int i = 0; i < 2; i++) {
        *variable = sizes[i];
        int count = get_count(environment, sizes[i]);
        if (count > 0)
            return count;
    }
    for (int i = 0; i < 2; i++) {
        if (!get(environment, pmi_ranks[i]))
            continue;
        for (int j = 0; j < 2; j++) {
            *variable = slurm_sizes[j];
            int count = get_count(environment, slurm_sizes[j]);
            if (count > 0)
                return count;
        }
        /* A launcher there is; how many processes it started, MPI will tell. */
        *variable = pmi_ranks[i];
        return 1;
    }
    *variable = NULL;
    return 0;
}

int dt_config_launcher_size(const char **variable)
{
    return dt_config_launcher_size_from(environ, variable);
}

void dt_config_suggest(const char *variable, const char *value)
{
    (void)setenv(variable, value, 0); /* without memory for it, it stays unsuggested */
}
