/* Values of settings in text: what is accepted, and how it is said that something is not. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/config_table.h"
#include "base/text.h"

typedef struct unit {
    const char *name;
    int64_t factor;
} unit_t;

/* K, KB and KiB are all 1024 bytes: nobody who writes 64MB wants 61.04 MiB. */
static const unit_t byte_units[] = {
    {"b", 1},
    {"k", INT64_C(1) << 10},
    {"kb", INT64_C(1) << 10},
    {"kib", INT64_C(1) << 10},
    {"m", INT64_C(1) << 20},
    {"mb", INT64_C(1) << 20},
    {"mib", INT64_C(1) << 20},
    {"g", INT64_C(1) << 30},
    {"gb", INT64_C(1) << 30},
    {"gib", INT64_C(1) << 30},
    {NULL, 0},
};

static const unit_t time_units[] = {
    {"us", DT_NS_PER_US},      {"ms", DT_NS_PER_MS},      {"s", DT_NS_PER_S},
    {"min", 60 * DT_NS_PER_S}, {"h", 3600 * DT_NS_PER_S}, {NULL, 0},
};

/* Decimal places that are kept: a product with the largest factor still fits 64 bits. */
#define MAX_DECIMALS 6
#define DECIMALS_SCALE INT64_C(1000000)

/* A number in text: digits, perhaps a point and more digits. Not strtod, whose point is a comma
 * in some locales. */
typedef struct number {
    int64_t whole;
    int64_t millionths;
} number_t;

/* Rounds up, as scale_number does. */
static int read_decimals(const char **at, int64_t *millionths)
{
    int digits = 0;
    int is_cut = 0;
    for (; isdigit((unsigned char)**at); (*at)++, digits++) {
        if (digits < MAX_DECIMALS)
            *millionths = *millionths * 10 + (**at - '0');
        else
            is_cut |= **at != '0';
    }
    for (int i = digits; i < MAX_DECIMALS; i++)
        *millionths *= 10;
    *millionths += is_cut;
    return digits > 0 ? 0 : -1;
}

/* 0, or -1 when there is no number at *at or it is out of all bounds. */
static int read_number(const char **at, number_t *number)
{
    const char *start = *at;
    *number = (number_t){0};
    for (; isdigit((unsigned char)**at); (*at)++) {
        if (__builtin_mul_overflow(number->whole, 10, &number->whole) ||
            __builtin_add_overflow(number->whole, **at - '0', &number->whole))
            return -1;
    }
    if (*at == start)
        return -1;
    if (**at != '.')
        return 0;
    (*at)++;
    return read_decimals(at, &number->millionths);
}

/* The factor of a unit's name, `plain` when there is none, 0 when it is not known. */
static int64_t find_unit(const unit_t *units, const char *name, int64_t plain)
{
    if (*name == '\0')
        return plain;
    for (; units->name; units++) {
        if (strcasecmp(units->name, name) == 0)
            return units->factor;
    }
    return 0;
}

/* number * factor / unit, rounded up, so that nothing above zero becomes zero. */
static int scale_number(number_t number, int64_t factor, int64_t unit, int64_t *value)
{
    int64_t total;
    int64_t part = (number.millionths * factor + DECIMALS_SCALE - 1) / DECIMALS_SCALE;
    if (__builtin_mul_overflow(number.whole, factor, &total) ||
        __builtin_add_overflow(total, part, &total))
        return -1;
    *value = total / unit + (total % unit != 0);
    return 0;
}

static int parse_quantity(const dt_setting_t *setting, const char *text, int64_t *value)
{
    int is_time = setting->kind == DT_SETTING_DURATION;
    int64_t unit = is_time ? setting->unit_ns : 1;
    number_t number;
    if (setting->auto_word && strcasecmp(text, setting->auto_word) == 0) {
        *value = 0;
        return 0;
    }
    if (setting->may_be_off && strcasecmp(text, "off") == 0) {
        *value = -1;
        return 0;
    }
    if (read_number(&text, &number) != 0)
        return -1;
    if (text[0] == ' ' && text[1] != '\0')
        text++;
    int64_t factor = find_unit(is_time ? time_units : byte_units, text, unit);
    if (factor == 0 || scale_number(number, factor, unit, value) != 0)
        return -1;
    /* 0 in text is a number as others are; in the struct it would be the default. */
    if (*value == 0 && setting->may_be_off)
        *value = -1;
    return *value == -1 || (*value >= setting->min && *value <= setting->max) ? 0 : -1;
}

static int parse_choice(const dt_setting_t *setting, const char *text, int64_t *value)
{
    for (const dt_choice_t *choice = setting->choices; choice->name; choice++) {
        char number[24];
        snprintf(number, sizeof number, "%lld", (long long)choice->value);
        if (strcasecmp(text, choice->name) == 0 || strcmp(text, number) == 0) {
            *value = choice->value;
            return 0;
        }
    }
    return -1;
}

static const char *find_word(const dt_setting_t *setting, const char *text)
{
    for (const dt_choice_t *choice = setting->choices; choice->name; choice++) {
        if (strcasecmp(text, choice->name) == 0)
            return choice->name;
    }
    return NULL;
}

static int parse_text(const dt_setting_t *setting, const char *text, dtrain_config_t *config)
{
    char *field = (char *)config + setting->offset;
    if (setting->kind == DT_SETTING_WORD)
        text = find_word(setting, text);
    if (!text || strlen(text) >= setting->size)
        return -1;
    /* Zeros to the end: settings are compared and sent as bytes. */
    strncpy(field, text, setting->size);
    return 0;
}

int dt_setting_parse(const dt_setting_t *setting, const char *value, dtrain_config_t *config)
{
    int64_t number = 0;
    int rc;
    if (setting->kind == DT_SETTING_WORD || setting->kind == DT_SETTING_TEXT)
        return parse_text(setting, value, config);
    if (setting->kind == DT_SETTING_CHOICE)
        rc = parse_choice(setting, value, &number);
    else
        rc = parse_quantity(setting, value, &number);
    if (rc == 0)
        dt_setting_store(config, setting->offset, setting->size, number);
    return rc;
}

static int check_number(const dt_setting_t *setting, int64_t value)
{
    if (value == 0 || (value == -1 && setting->may_be_off))
        return 0;
    if (setting->kind != DT_SETTING_CHOICE)
        return value >= setting->min && value <= setting->max ? 0 : -1;
    for (const dt_choice_t *choice = setting->choices; choice->name; choice++) {
        if (choice->value == value)
            return 0;
    }
    return -1;
}

int dt_setting_check(const dt_setting_t *setting, const dtrain_config_t *config)
{
    const char *field = (const char *)config + setting->offset;
    if (setting->kind != DT_SETTING_WORD && setting->kind != DT_SETTING_TEXT)
        return check_number(setting, dt_setting_load(config, setting->offset, setting->size));
    if (!memchr(field, '\0', setting->size))
        return -1;
    if (setting->kind == DT_SETTING_TEXT || field[0] == '\0')
        return 0;
    return find_word(setting, field) ? 0 : -1;
}

const char *dt_setting_show(const dt_setting_t *setting, int64_t value, char *text, size_t cap)
{
    static const unit_t sizes[] = {
        {"GiB", INT64_C(1) << 30}, {"MiB", INT64_C(1) << 20}, {"KiB", INT64_C(1) << 10}, {"B", 1}};
    static const unit_t times[] = {
        {"s", DT_NS_PER_S}, {"ms", DT_NS_PER_MS}, {"us", DT_NS_PER_US}, {"ns", 1}};
    int is_time = setting->kind == DT_SETTING_DURATION;
    const unit_t *unit = is_time ? times : sizes;
    int64_t total = is_time ? value * setting->unit_ns : value;
    while (total % unit->factor != 0)
        unit++;
    dt_text_format(text, cap, "%lld %s", (long long)(total / unit->factor), unit->name);
    return text;
}

static void list_choices(const dt_setting_t *setting, char *text, size_t cap)
{
    size_t length = 0;
    for (const dt_choice_t *choice = setting->choices; choice->name; choice++) {
        const char *before = choice == setting->choices ? "" : choice[1].name ? ", " : " or ";
        length += dt_text_format(text + length, cap - length, "%s%s", before, choice->name);
    }
}

const char *dt_setting_expected(const dt_setting_t *setting, char expected[DT_EXPECTED_MAX])
{
    char least[32];
    char most[32];
    if (setting->kind == DT_SETTING_CHOICE || setting->kind == DT_SETTING_WORD) {
        list_choices(setting, expected, DT_EXPECTED_MAX);
        return expected;
    }
    if (setting->kind == DT_SETTING_TEXT) {
        dt_text_format(expected, DT_EXPECTED_MAX, "at most %zu bytes", setting->size - 1);
        return expected;
    }
    dt_text_format(expected, DT_EXPECTED_MAX, "%s, from %s to %s%s%s%s",
                   setting->kind == DT_SETTING_BYTES ? "a size such as 64MB or 512K"
                                                     : "a duration such as 1.5s or 200ms",
                   dt_setting_show(setting, setting->min, least, sizeof least),
                   dt_setting_show(setting, setting->max, most, sizeof most),
                   setting->auto_word ? ", or " : "", setting->auto_word ? setting->auto_word : "",
                   setting->may_be_off ? ", or off" : "");
    return expected;
}
