#pragma once

#define LS_RULES "analysis/rules/diff.def"
#include "core/rules.inc"
