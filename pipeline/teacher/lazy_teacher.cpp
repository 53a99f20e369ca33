#include "pipeline/teacher/lazy_teacher.hpp"

#include <boost/system/system_error.hpp>
#include <optional>
#include <utility>

#include "pipeline/async/abort.hpp"
#include "pipeline/async/condition.hpp"

namespace distilld {

namespace asio = boost::asio;

namespace {

class LazyTeacher final : public TeacherSource {
  public:
    LazyTeacher(asio::any_io_executor io, std::vector<std::string> names, ConnectTeacher connect)
        : names_(std::move(names)), connect_(std::move(connect)), changed_(std::move(io)) {}

    std::size_t endpoint_count() const override { return names_.size(); }
    const std::string& endpoint_name(std::size_t endpoint) const override { return names_.at(endpoint); }
    asio::awaitable<Result<TeacherInfo>> probe(std::uint32_t) override {
        co_return Error{ErrorKind::internal, "a teacher that is connected later cannot be probed"};
    }
    AnswerSize answer_size(std::uint32_t rows, std::uint32_t columns) const override {
        return teacher_ ? teacher_->answer_size(rows, columns) : AnswerSize();
    }

    asio::awaitable<FetchResult<EncodedAnswer>> fetch(std::size_t endpoint, std::shared_ptr<const TokenBatch> tokens,
                                                      std::chrono::nanoseconds deadline) override {
        try {
            const Result<void> done = co_await connected();
            if (!done) {
                co_return FetchError{FailureKind::rejected, done.error().message, std::nullopt};
            }
        } catch (const boost::system::system_error& failure) {
            if (!is_abort(failure.code())) {
                throw;
            }
            co_return FetchError{FailureKind::cancelled, names_.at(endpoint) + ": cancelled", std::nullopt};
        }
        co_return co_await teacher_->fetch(endpoint, std::move(tokens), deadline);
    }

    std::uint64_t bytes_received() const override { return teacher_ ? teacher_->bytes_received() : 0; }
    WireTraffic traffic(std::size_t endpoint) const override {
        return teacher_ ? teacher_->traffic(endpoint) : WireTraffic();
    }
    bool is_slow_by_chance() const override { return false; }
    void close() override {
        if (teacher_) {
            teacher_->close();
        }
    }

  private:
    /// One caller connects, the others wait.
    asio::awaitable<Result<void>> connected() {
        while (connecting_) {
            co_await changed_.wait();
        }
        if (teacher_) {
            co_return Result<void>();
        }
        struct Mark {
            LazyTeacher& of;
            explicit Mark(LazyTeacher& teacher) : of(teacher) { of.connecting_ = true; }
            Mark(const Mark&) = delete;
            Mark& operator=(const Mark&) = delete;
            ~Mark() {
                of.connecting_ = false;
                of.changed_.notify();
            }
        };
        const Mark mark(*this);
        Result<std::unique_ptr<TeacherSource>> made = co_await connect_();
        if (!made) {
            co_return made.error();
        }
        teacher_ = std::move(*made);
        co_return Result<void>();
    }

    std::vector<std::string> names_;
    ConnectTeacher connect_;
    Condition changed_;
    bool connecting_ = false;
    std::unique_ptr<TeacherSource> teacher_;
};

}  // namespace

std::unique_ptr<TeacherSource> make_lazy_teacher(asio::any_io_executor io, std::vector<std::string> names,
                                                 ConnectTeacher connect) {
    return std::make_unique<LazyTeacher>(std::move(io), std::move(names), std::move(connect));
}

}  // namespace distilld
