#include "pipeline/teacher/protocols/adapters.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "pipeline/core/target_rows.hpp"
#include "pipeline/teacher/protocols/json_answer.hpp"
#include "pipeline/teacher/protocols/number_text.hpp"

namespace distilld {
namespace {

namespace od = simdjson::ondemand;

/// Maximum bytes of a number with its comma: sign, 17 digits, point, exponent, and blanks.
constexpr std::uint64_t kJsonNumberBytes = 28;

std::string position_text(std::size_t row, std::size_t column) {
    return "logits[" + std::to_string(row) + "][" + std::to_string(column) + "]";
}

/// Takes the rows as they are read, into a float array or directly into the top-k reduction.
class RowSink {
  public:
    RowSink(const RequestPart& part, const TargetsWanted& wanted, BufferPool& buffers, std::size_t body_bytes)
        : part_(part), wanted_(wanted), buffers_(buffers), body_bytes_(body_bytes) {}

    /// Reads the next row, an array of numbers; all rows must be as wide as the first.
    void read_row(std::string_view numbers, std::size_t row, std::size_t column) {
        if (width_ == 0) {
            // The first row sets the width, which the body bounds.
            const auto commas = static_cast<std::size_t>(std::count(numbers.begin(), numbers.end(), ','));
            row_.resize(commas + 1);
        }
        const std::span<float> into = width_ == 0 || reducer_ ? std::span(row_) : next_row();
        const ArrayRead read = read_float_array(numbers, into);
        if (read.end == ArrayEnd::no_number) {
            fail_answer(position_text(row, column) + " holds something that is not a number");
        }
        if (width_ == 0) {
            if (read.count == 0) {
                fail_answer(position_text(row, column) + " is empty");
            }
            start(read.count);
        } else if (read.end == ArrayEnd::too_many || read.count != width_) {
            fail_answer(position_text(row, column) + (read.count == 0 ? " is empty" : ragged()));
        }
        if (reducer_ && !reducer_->add_row(std::span(row_).first(kept_))) {
            fail_answer(position_text(row, column) + " holds nothing finite");
        }
        ++next_;
    }

    TeacherTargets finish() {
        if (reducer_) {
            TeacherTargets targets = reducer_->finish();
            targets.vocabulary = width_;
            return targets;
        }
        TeacherTargets targets;
        targets.kind = TeacherTargets::Kind::logits;
        targets.rows = part_.rows;
        targets.columns = part_.columns;
        targets.width = static_cast<std::uint32_t>(width_);
        targets.values = ArrayView{ElementType::f32, floats_->bytes()};
        targets.held_bytes = floats_->capacity();
        targets.owner = floats_;
        return targets;
    }

  private:
    /// Starts with the first row, which is in row_.
    void start(std::size_t width) {
        const std::size_t positions = std::size_t{part_.rows} * part_.columns;
        // Each number takes at least two bytes of text, so memory that the body cannot fill is not allocated.
        if (width > std::numeric_limits<std::uint32_t>::max() || width > (body_bytes_ / 2 + 1) / positions) {
            fail_answer("the body is too short for " + std::to_string(positions) + " rows of " + std::to_string(width) +
                        " logits");
        }
        width_ = width;
        kept_ = wanted_.student != 0 ? std::min<std::size_t>(width, wanted_.student) : width;
        row_.resize(width);
        if (wanted_.top_k > 0) {
            reducer_.emplace(part_.rows, part_.columns, static_cast<std::uint32_t>(kept_), wanted_.top_k);
        } else {
            floats_ = buffers_.acquire(positions * width * sizeof(float));
            floats_->resize(positions * width * sizeof(float));
            std::copy(row_.begin(), row_.end(), next_row().begin());
        }
    }

    /// The next row of floats_, which is aligned by malloc.
    std::span<float> next_row() { return {reinterpret_cast<float*>(floats_->data()) + next_ * width_, width_}; }

    [[nodiscard]] std::string ragged() const {
        return " does not have " + std::to_string(width_) + " logits like the first row";
    }

    const RequestPart& part_;
    const TargetsWanted& wanted_;
    BufferPool& buffers_;
    std::size_t body_bytes_;
    std::size_t width_ = 0;
    std::size_t kept_ = 0;  ///< of these, ids that the student has
    std::size_t next_ = 0;
    std::vector<float> row_;
    std::optional<TopKReducer> reducer_;
    std::shared_ptr<BodyBuffer> floats_;
};

TeacherTargets read_logits(od::document& document, const RequestPart& part, RowSink& sink) {
    od::object object;
    if (document.get_object().get(object) != simdjson::SUCCESS) {
        fail_answer("the answer is not a JSON object");
    }
    od::value logits;
    if (object.find_field_unordered("logits").get(logits) != simdjson::SUCCESS) {
        fail_answer("the answer has no 'logits'");
    }
    std::size_t row = 0;
    for (auto sequence : json_array(logits, "'logits'")) {
        if (row == part.rows) {
            fail_answer("'logits' has more than the " + std::to_string(part.rows) + " sequences that were asked for");
        }
        std::size_t column = 0;
        const std::string where = "logits[" + std::to_string(row) + "]";
        for (auto position : json_array(sequence.value(), where)) {
            if (column == part.columns) {
                fail_answer(where + " has more than the " + std::to_string(part.columns) + " positions asked for");
            }
            od::array numbers =
                json_array(position.value(), [&] { return where + "[" + std::to_string(column) + "]"; });
            sink.read_row(numbers.raw_json().value(), row, column);
            ++column;
        }
        if (column != part.columns) {
            fail_answer(where + " has " + std::to_string(column) + " positions, " + std::to_string(part.columns) +
                        " were asked for");
        }
        ++row;
    }
    if (row != part.rows) {
        fail_answer("'logits' has " + std::to_string(row) + " sequences, " + std::to_string(part.rows) +
                    " were asked for");
    }
    return sink.finish();
}

class SeedCodec final : public TeacherCodec {
  public:
    /// `number_bytes`: average text of a logit; 0 = unknown yet.
    SeedCodec(std::string target, TargetsWanted wanted, std::shared_ptr<BufferPool> buffers, double number_bytes)
        : target_(std::move(target)), wanted_(wanted), buffers_(std::move(buffers)), number_bytes_(number_bytes) {}

    Result<HttpRequest> make_request(const TokenBatch& tokens, const RequestPart& part) const override {
        auto body = std::make_shared<std::string>(R"({"input_ids":[)");
        std::array<char, 16> digits;
        const std::vector<std::int32_t> ids = input_ids_of(tokens, part);
        for (std::uint32_t row = 0; row < part.rows; ++row) {
            *body += row == 0 ? "[" : ",[";
            for (std::uint32_t column = 0; column < part.columns; ++column) {
                if (column > 0) {
                    body->push_back(',');
                }
                const std::int32_t id = ids[std::size_t{row} * part.columns + column];
                const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), id);
                body->append(digits.data(), end.ptr);
            }
            body->push_back(']');
        }
        *body += R"(],"return_logits":true})";
        HttpRequest request;
        request.target = target_;
        request.content_type = kJsonContentType;
        request.body = std::move(body);
        return request;
    }

    Result<TeacherTargets> decode(const HttpResponse& response, const TokenBatch&,
                                  const RequestPart& part) const override {
        return read_json_answer(*response.body, *parsers_, [&](od::document& document) {
            RowSink sink(part, wanted_, *buffers_, response.body->size());
            return read_logits(document, part, sink);
        });
    }

    AnswerSize answer_size(std::uint32_t rows, std::uint32_t columns) const override {
        const std::uint64_t positions = std::uint64_t{rows} * columns;
        AnswerSize size;
        if (wanted_.vocabulary != 0) {
            size.max_accepted_bytes = positions * wanted_.vocabulary * kJsonNumberBytes + (64U << 10U);
            size.max_wire_bytes =
                json_wire_bytes(positions * wanted_.vocabulary, number_bytes_, size.max_accepted_bytes);
        }
        size.held_bytes = positions * (wanted_.top_k > 0 ? reduced_row_bytes(wanted_.top_k, wanted_.vocabulary)
                                                         : std::uint64_t{wanted_.vocabulary} * sizeof(float));
        // Two marks per number: the value and its comma.
        size.decode_bytes = json_decode_bytes(size.held_bytes, 2 * positions * wanted_.vocabulary);
        return size;
    }

    std::string description() const override {
        return wanted_.top_k > 0 ? "seed JSON, reduced to the top " + std::to_string(wanted_.top_k) : "seed JSON";
    }

  private:
    std::string target_;
    TargetsWanted wanted_;
    std::shared_ptr<BufferPool> buffers_;
    double number_bytes_;
    std::shared_ptr<JsonParsers> parsers_ = std::make_shared<JsonParsers>();
};

/// The server has no other pages, so the negotiation is a single answer.
class SeedAdapter final : public TeacherProtocolAdapter {
  public:
    explicit SeedAdapter(const ProtocolSettings& settings)
        : target_(settings.url.target()), buffers_(settings.buffers) {}

    Result<std::shared_ptr<const TeacherCodec>> assumed_codec(TargetsWanted wanted) const override {
        return make_codec(wanted, 0);
    }

    boost::asio::awaitable<FetchResult<Negotiated>> negotiate(ProbeDialogue& dialogue,
                                                              TargetsWanted wanted) const override {
        Negotiated negotiated;
        wanted.vocabulary = 0;  // known only from the answer
        auto answer = co_await dialogue.ask(make_codec(wanted, 0));
        if (!answer) {
            co_return failed_probe(answer.error());
        }
        negotiated.answer = std::move(answer->targets);
        const bool logits = negotiated.answer.kind == TeacherTargets::Kind::logits;
        wanted.vocabulary = logits ? negotiated.answer.width : static_cast<std::uint32_t>(negotiated.answer.vocabulary);
        const double numbers = double{1} * negotiated.answer.rows * negotiated.answer.columns * wanted.vocabulary;
        negotiated.codec =
            make_codec(wanted, numbers > 0 ? static_cast<double>(negotiated.answer.wire_bytes) / numbers : 0);
        co_return negotiated;
    }

  private:
    [[nodiscard]] std::shared_ptr<const TeacherCodec> make_codec(TargetsWanted wanted, double number_bytes) const {
        return std::make_shared<SeedCodec>(target_, wanted, buffers_, number_bytes);
    }

    std::string target_;
    std::shared_ptr<BufferPool> buffers_;
};

}  // namespace

Result<std::unique_ptr<TeacherProtocolAdapter>> make_seed_protocol_adapter(const ProtocolSettings& settings) {
    return std::unique_ptr<TeacherProtocolAdapter>(std::make_unique<SeedAdapter>(settings));
}

}  // namespace distilld
