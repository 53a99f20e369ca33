#pragma once

#include <string>
#include <utility>
#include <vector>

#include "server/sinks/sink.hpp"

namespace distilld::sinks {

/// A sink that writes to a file, and is done with that at once.
class FileSink : public Sink {
  public:
    /// `field`: what messages begin with, "/metrics/jsonl_file: ".
    explicit FileSink(std::string field) : field_(std::move(field)) {}

    boost::asio::awaitable<WriteResult> write(const std::vector<SinkItem>& items) final {
        if (const Result<void> done = write_now(items); !done) {
            co_return SinkFailure{field_ + done.error().message};
        }
        co_return Written();
    }

  private:
    /// See Sink::write; errors name the file.
    virtual Result<void> write_now(const std::vector<SinkItem>& items) = 0;

    std::string field_;
};

}  // namespace distilld::sinks
