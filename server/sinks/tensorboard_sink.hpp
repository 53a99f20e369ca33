#pragma once

#include "server/sinks/sink.hpp"

namespace distilld::sinks {

/// metrics.tensorboard_dir: an event file of its own for each attempt of the run.
[[nodiscard]] Result<std::unique_ptr<Sink>> make_tensorboard_sink(const SinkContext& context,
                                                                  boost::asio::any_io_executor thread);

}  // namespace distilld::sinks
