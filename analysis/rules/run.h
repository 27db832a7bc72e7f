#pragma once

#define LS_RULES "analysis/rules/run.def"
#include "core/rules.inc"
