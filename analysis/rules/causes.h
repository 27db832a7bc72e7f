#pragma once

#define LS_RULES "analysis/rules/causes.def"
#include "core/rules.inc"
