#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <functional>
#include <string>
#include <string_view>

namespace distilld {

/// A child's stderr and stdout. Keeps the last 8 KiB and passes on each line at once. The child may write any bytes;
/// all results are UTF-8. One executor.
class WorkerOutput {
  public:
    using LineSink = std::function<void(const std::string&)>;

    /// `sink` takes each line without its newline; may be empty.
    WorkerOutput(const boost::asio::any_io_executor& executor, LineSink sink);

    /// Takes ownership of `fd`, the read end of a pipe.
    void assign(int fd);
    /// Reads to the end of the pipe, or until close(). `*this` must outlive the coroutine.
    boost::asio::awaitable<void> read();
    void close();

    [[nodiscard]] std::string tail() const;
    /// The last line that is not blank; empty if there is none.
    [[nodiscard]] std::string last_line() const;

  private:
    void take(std::string_view bytes);
    void hand_on();

    boost::asio::posix::stream_descriptor pipe_;
    LineSink sink_;
    std::string line_;
    std::string tail_;
};

/// Copies lines to our own stderr.
void write_to_stderr(const std::string& line);

}  // namespace distilld
