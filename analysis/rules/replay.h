#pragma once

#define LS_RULES "analysis/rules/replay.def"
#include "core/rules.inc"
