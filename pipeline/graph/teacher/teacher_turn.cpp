#include "pipeline/graph/teacher/teacher_turn.hpp"

#include <chrono>
#include <cstddef>
#include <string>
#include <utility>

namespace distilld {

namespace asio = boost::asio;

namespace {

class TurnTakingTeacher final : public TeacherSource {
  public:
    TurnTakingTeacher(TeacherSource& teacher, TeacherTurn& turn) : teacher_(teacher), turn_(turn) {}

    std::size_t endpoint_count() const override { return teacher_.endpoint_count(); }
    const std::string& endpoint_name(std::size_t endpoint) const override { return teacher_.endpoint_name(endpoint); }
    asio::awaitable<Result<TeacherInfo>> probe(std::uint32_t) override {
        co_return Error{ErrorKind::internal, "the training has probed this teacher"};
    }
    AnswerSize answer_size(std::uint32_t rows, std::uint32_t columns) const override {
        return teacher_.answer_size(rows, columns);
    }

    asio::awaitable<FetchResult<EncodedAnswer>> fetch(std::size_t endpoint, std::shared_ptr<const TokenBatch> tokens,
                                                      std::chrono::nanoseconds deadline) override {
        co_await turn_.take();
        co_return co_await teacher_.fetch(endpoint, std::move(tokens), deadline);
    }

    bool is_slow_by_chance() const override { return teacher_.is_slow_by_chance(); }
    void close() override {}

  private:
    TeacherSource& teacher_;
    TeacherTurn& turn_;
};

}  // namespace

std::unique_ptr<TeacherSource> make_turn_taking_teacher(TeacherSource& teacher, TeacherTurn& turn) {
    return std::make_unique<TurnTakingTeacher>(teacher, turn);
}

}  // namespace distilld
