#pragma once

#define LS_RULES "analysis/rules/stragglers.def"
#include "core/rules.inc"
