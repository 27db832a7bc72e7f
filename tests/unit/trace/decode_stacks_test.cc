// Samples of stacks, from the agent's spool to tables.

#include <gtest/gtest.h>

#include "tests/unit/trace/decode_fixture.h"

namespace lockstep::trace {
namespace {

class DecodeStacksFile : public DecodeFixture {};

}  // namespace
}  // namespace lockstep::trace
