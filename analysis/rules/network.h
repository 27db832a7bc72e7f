#pragma once

#define LS_RULES "analysis/rules/network.def"
#include "core/rules.inc"
