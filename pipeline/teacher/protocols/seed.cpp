#include <simdjson.h>

#include <array>
#include <charconv>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

#include "pipeline/teacher/target_rows.hpp"
#include "pipeline/teacher/teacher_adapter.hpp"

namespace distilld {
namespace {

namespace od = simdjson::ondemand;

/// Text of one number with its comma, at most: sign, 17 digits, point, exponent, and blanks between.
constexpr std::uint64_t kJsonNumberBytes = 28;

[[noreturn]] void fail(std::string message) {
    throw ErrorException(teacher_error(std::move(message)));
}

std::string position_text(std::size_t row, std::size_t column) {
    return "logits[" + std::to_string(row) + "][" + std::to_string(column) + "]";
}

/// Takes the rows as they are read: into a float array, or straight into the top-k reduction.
class RowSink {
  public:
    RowSink(const TokenBatch& tokens, const TargetsWanted& wanted, BufferPool& buffers, std::size_t body_bytes)
        : tokens_(tokens), wanted_(wanted), buffers_(buffers), body_bytes_(body_bytes) {}

    /// Room for the next row; the width of the first row sets that of all.
    void begin_row() { filled_ = 0; }

    void put(float value, std::size_t row, std::size_t column) {
        if (width_ != 0 && filled_ == width_) {
            ragged(row, column);
        }
        if (width_ == 0) {
            row_.push_back(value);  // the first row tells the width; the body bounds it
        } else {
            row_[filled_] = value;
        }
        ++filled_;
    }

    void end_row(std::size_t row, std::size_t column) {
        if (filled_ == 0) {
            fail(position_text(row, column) + " is empty");
        }
        if (width_ == 0) {
            start(filled_);
        } else if (filled_ != width_) {
            ragged(row, column);
        }
        if (reducer_) {
            if (!reducer_->add_row(row_)) {
                fail(position_text(row, column) + " holds nothing finite");
            }
        } else {
            std::memcpy(floats_->data() + next_ * width_ * sizeof(float), row_.data(), width_ * sizeof(float));
        }
        ++next_;
    }

    TeacherTargets finish() {
        if (reducer_) {
            return reducer_->finish();
        }
        TeacherTargets targets;
        targets.kind = TeacherTargets::Kind::logits;
        targets.rows = tokens_.rows;
        targets.columns = tokens_.columns;
        targets.width = static_cast<std::uint32_t>(width_);
        targets.values = ArrayView{ElementType::f32, floats_->bytes()};
        targets.held_bytes = floats_->capacity();
        targets.owner = floats_;
        return targets;
    }

  private:
    void start(std::size_t width) {
        const std::size_t positions = std::size_t{tokens_.rows} * tokens_.columns;
        // Each number takes two bytes of text at least: what the body cannot hold is not allocated.
        if (width > std::numeric_limits<std::uint32_t>::max() || width > (body_bytes_ / 2 + 1) / positions) {
            fail("the body is too short for " + std::to_string(positions) + " rows of " + std::to_string(width) +
                 " logits");
        }
        if (wanted_.vocabulary != 0 && width != wanted_.vocabulary) {
            fail("the teacher's rows have " + std::to_string(width) + " logits, the student's vocabulary has " +
                 std::to_string(wanted_.vocabulary) + " ids");
        }
        width_ = width;
        if (wanted_.top_k > 0) {
            reducer_.emplace(tokens_.rows, tokens_.columns, static_cast<std::uint32_t>(width), wanted_.top_k);
        } else {
            floats_ = buffers_.acquire();
            floats_->resize(positions * width * sizeof(float));
        }
    }

    [[noreturn]] void ragged(std::size_t row, std::size_t column) const {
        fail(position_text(row, column) + " does not have " + std::to_string(width_) + " logits like the first row");
    }

    const TokenBatch& tokens_;
    const TargetsWanted& wanted_;
    BufferPool& buffers_;
    std::size_t body_bytes_;
    std::size_t width_ = 0;
    std::size_t filled_ = 0;
    std::size_t next_ = 0;
    std::vector<float> row_;
    std::optional<TopKReducer> reducer_;
    std::shared_ptr<BodyBuffer> floats_;
};

od::array array_of(od::value value, const std::string& where) {
    od::array array;
    if (value.get_array().get(array) != simdjson::SUCCESS) {
        fail(where + " is not an array");
    }
    return array;
}

void read_row(od::array numbers, std::size_t row, std::size_t column, RowSink& sink) {
    sink.begin_row();
    for (auto item : numbers) {
        double number = 0;
        if (item.get_double().get(number) != simdjson::SUCCESS) {
            fail(position_text(row, column) + " holds something that is not a number");
        }
        sink.put(static_cast<float>(number), row, column);
    }
    sink.end_row(row, column);
}

TeacherTargets read_logits(od::document& document, const TokenBatch& tokens, RowSink& sink) {
    od::object object;
    if (document.get_object().get(object) != simdjson::SUCCESS) {
        fail("the answer is not a JSON object");
    }
    od::value logits;
    if (object.find_field_unordered("logits").get(logits) != simdjson::SUCCESS) {
        fail("the answer has no 'logits'");
    }
    std::size_t row = 0;
    for (auto sequence : array_of(logits, "'logits'")) {
        if (row == tokens.rows) {
            fail("'logits' has more than the " + std::to_string(tokens.rows) + " sequences that were asked for");
        }
        std::size_t column = 0;
        const std::string where = "logits[" + std::to_string(row) + "]";
        for (auto position : array_of(sequence.value(), where)) {
            if (column == tokens.columns) {
                fail(where + " has more than the " + std::to_string(tokens.columns) + " positions asked for");
            }
            read_row(array_of(position.value(), where + "[" + std::to_string(column) + "]"), row, column, sink);
            ++column;
        }
        if (column != tokens.columns) {
            fail(where + " has " + std::to_string(column) + " positions, " + std::to_string(tokens.columns) +
                 " were asked for");
        }
        ++row;
    }
    if (row != tokens.rows) {
        fail("'logits' has " + std::to_string(row) + " sequences, " + std::to_string(tokens.rows) + " were asked for");
    }
    return sink.finish();
}

class SeedAdapter final : public TeacherAdapter {
  public:
    SeedAdapter(const EndpointUrl& url, const TargetsWanted& wanted, std::shared_ptr<BufferPool> buffers)
        : target_(url.target()), wanted_(wanted), buffers_(std::move(buffers)) {}

    Result<HttpRequest> make_request(const TokenBatch& tokens) const override {
        auto body = std::make_shared<std::string>(R"({"input_ids":[)");
        std::array<char, 16> digits;
        for (std::uint32_t row = 0; row < tokens.rows; ++row) {
            *body += row == 0 ? "[" : ",[";
            for (std::uint32_t column = 0; column < tokens.columns; ++column) {
                if (column > 0) {
                    body->push_back(',');
                }
                const std::int32_t id = tokens.input_ids[std::size_t{row} * tokens.columns + column];
                const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), id);
                body->append(digits.data(), end.ptr);
            }
            body->push_back(']');
        }
        *body += R"(],"return_logits":true})";
        HttpRequest request;
        request.target = target_;
        request.content_type = std::string(kserve::kJsonContentType);
        request.body = std::move(body);
        request.response_limit = wanted_.response_limit;
        if (wanted_.vocabulary != 0 && !wanted_.probing) {
            const std::uint64_t positions = std::uint64_t{tokens.rows} * tokens.columns;
            const std::uint64_t expected = positions * wanted_.vocabulary * kJsonNumberBytes + (64U << 10U);
            request.response_limit = std::min(request.response_limit, expected);
        }
        return request;
    }

    Result<TeacherTargets> decode(const HttpResponse& response, const TokenBatch& tokens) const override {
        try {
            const BodyBuffer& body = *response.body;
            const simdjson::padded_string_view json(reinterpret_cast<const char*>(body.data()), body.size(),
                                                    body.size() + BodyBuffer::kPadding);
            od::parser parser;
            od::document document = parser.iterate(json);
            RowSink sink(tokens, wanted_, *buffers_, body.size());
            return read_logits(document, tokens, sink);
        } catch (const ErrorException& error) {
            return error.error();
        } catch (const simdjson::simdjson_error& error) {
            return teacher_error(std::string("the answer is not valid JSON: ") + error.what());
        }
    }

    std::string description() const override {
        return wanted_.top_k > 0 ? "seed JSON, reduced to the top " + std::to_string(wanted_.top_k) : "seed JSON";
    }

  private:
    std::string target_;
    TargetsWanted wanted_;
    std::shared_ptr<BufferPool> buffers_;
};

}  // namespace

std::unique_ptr<TeacherAdapter> make_seed_adapter(const EndpointUrl& url, const TargetsWanted& wanted,
                                                  std::shared_ptr<BufferPool> buffers) {
    return std::make_unique<SeedAdapter>(url, wanted, std::move(buffers));
}

}  // namespace distilld
