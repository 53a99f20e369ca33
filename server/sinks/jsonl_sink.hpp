#pragma once

#include "server/sinks/sink.hpp"

namespace distilld::sinks {

/// metrics.jsonl_file: a line of JSON for each record.
[[nodiscard]] Result<std::unique_ptr<Sink>> make_jsonl_sink(const SinkContext& context,
                                                            boost::asio::any_io_executor thread);

}  // namespace distilld::sinks
