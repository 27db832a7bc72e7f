#pragma once

#define LS_RULES "merge/rules/match.def"
#include "core/rules.inc"
