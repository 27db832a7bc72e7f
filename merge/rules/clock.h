#pragma once

#define LS_RULES "merge/rules/clock.def"
#include "core/rules.inc"
