#pragma once

#include <boost/describe/class.hpp>
#include <cstdint>
#include <string>
#include <tuple>

#include "base/type_table.hpp"
#include "server/protocol/worker_messages.hpp"

/// What a worker's relay on another machine and the service say to each other (server/protocol/numbered_link.hpp): the
/// worker's own messages, and what the supervisor of a worker on this machine sees by itself.
namespace distilld {

/// A line that the worker wrote to stderr or stdout.
struct OutputMessage {
    std::string line;
};

/// The last message: the worker has ended, and its last event, if it sent one, came before.
struct EndMessage {
    std::int32_t exit_code = 0;
    std::string stderr_tail;
    std::string error;  ///< why it could not be started; empty: it was
};

/// Kill the worker at once.
struct KillMessage {};

BOOST_DESCRIBE_STRUCT(OutputMessage, (), (line))
BOOST_DESCRIBE_STRUCT(EndMessage, (), (exit_code, stderr_tail, error))
BOOST_DESCRIBE_STRUCT(KillMessage, (), ())

inline constexpr std::tuple kFromRelay =
    std::tuple_cat(kWorkerEvents, std::tuple(MessageRow<OutputMessage>{"output"}, MessageRow<EndMessage>{"end"}));
inline constexpr std::tuple kToRelay = std::tuple_cat(kDownMessages, std::tuple(MessageRow<KillMessage>{"kill"}));

using FromRelay = VariantOf<kFromRelay>;
using ToRelay = VariantOf<kToRelay>;

}  // namespace distilld
