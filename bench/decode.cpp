// distilld-bench decode: how fast answers become targets, beside what the machine can read at all.
#include <simdjson.h>
#include <time.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>

#include "bench/decode_bodies.hpp"
#include "bench/median.hpp"
#include "bench/scenario.hpp"
#include "pipeline/teacher/answer_decoding.hpp"

namespace distilld::bench {
namespace {

namespace od = simdjson::ondemand;

double sum_of(od::array numbers) {
    double sum = 0;
    for (auto number : numbers) {
        sum += number.get_double().value();
    }
    return sum;
}

double walk_logits(od::object answer) {
    double sum = 0;
    for (auto sequence : answer["logits"].get_array()) {
        for (auto position : sequence.get_array()) {
            sum += sum_of(position.get_array());
        }
    }
    return sum;
}

double walk_tensors(od::object answer) {
    double sum = 0;
    for (auto tensor : answer["outputs"].get_array()) {
        sum += sum_of(tensor["data"].get_array());
    }
    return sum;
}

double walk_prompt_logprobs(od::object answer) {
    double sum = 0;
    for (auto choice : answer["choices"].get_array()) {
        for (auto row : choice["prompt_logprobs"].get_array()) {
            if (row.is_null()) {
                continue;
            }
            for (auto entry : row.get_object()) {
                sum += static_cast<double>(entry.unescaped_key().value().size());
                for (auto member : entry.value().get_object()) {
                    sum += member.key().value() == "decoded_token"
                               ? static_cast<double>(member.value().get_string().value().size())
                               : member.value().get_double().value();
                }
            }
        }
    }
    return sum;
}

/// What the machine makes of these bytes when nothing is done with them: for JSON a walk with simdjson that visits each
/// value and reads each number, its buffers kept; for binary tensors a copy.
class BareReader {
  public:
    double read(const DecodeCase& of) {
        const BodyBuffer& body = *of.response.body;
        if (of.form == AnswerForm::binary) {
            copy_.resize(body.size());
            std::memcpy(copy_.data(), body.data(), body.size());
            return static_cast<double>(copy_[body.size() / 2]);
        }
        const simdjson::padded_string_view json(reinterpret_cast<const char*>(body.data()), body.size(),
                                                body.size() + BodyBuffer::kPadding);
        od::document document = parser_.iterate(json);
        const od::object answer = document.get_object().value();
        switch (of.form) {
            case AnswerForm::logits:
                return walk_logits(answer);
            case AnswerForm::tensors:
                return walk_tensors(answer);
            default:
                return walk_prompt_logprobs(answer);
        }
    }

  private:
    od::parser parser_;
    std::vector<char> copy_;
};

void decode(const DecodeCase& of, std::uint32_t vocabulary) {
    const std::vector<RequestPart> parts{whole_batch(of.tokens)};
    const auto answer = decode_answer(*of.codec, of.tokens, {vocabulary, vocabulary}, parts, {of.response});
    if (!answer) {
        throw std::runtime_error(of.name + ": " + answer.error().message);
    }
}

/// Of this thread, so that others on the machine do not count.
double cpu_seconds() {
    timespec now{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double cpu_seconds_of(const auto& work) {
    const double began = cpu_seconds();
    work();
    return cpu_seconds() - began;
}

boost::json::object measure(const DecodeCase& of, const DecodeOptions& options) {
    BareReader bare;
    double sum = bare.read(of);
    decode(of, options.vocabulary);  // once unmeasured: buffers and pages of a first run are not what is compared
    std::vector<double> ours;
    std::vector<double> theirs;
    std::vector<double> ratios;
    for (std::uint32_t i = 0; i < options.repeat; ++i) {
        theirs.push_back(cpu_seconds_of([&] { sum += bare.read(of); }));
        ours.push_back(cpu_seconds_of([&] { decode(of, options.vocabulary); }));
        ratios.push_back(theirs.back() / ours.back());
    }
    const auto bytes = static_cast<double>(of.response.body->size());
    boost::json::object report;
    report["name"] = of.name;
    report["bytes"] = of.response.body->size();
    report["decode_gb_per_second"] = bytes / median(ours) / 1e9;
    report[of.form != AnswerForm::binary ? "walk_gb_per_second" : "memcpy_gb_per_second"] =
        bytes / median(theirs) / 1e9;
    report["ratio"] = median(ratios);
    if (sum == 0.125) {  // keeps the walks from being left out
        report["sum"] = sum;
    }
    return report;
}

void write_bodies(const std::vector<DecodeCase>& cases, const std::string& folder) {
    std::filesystem::create_directories(folder);
    for (const DecodeCase& of : cases) {
        const std::string file = folder + "/" + of.name + (of.form != AnswerForm::binary ? ".json" : ".bin");
        std::ofstream out(file, std::ios::binary);
        const auto text = body_text(of.response);
        out.write(text.data(), static_cast<std::streamsize>(text.size()));
        if (!out.flush()) {
            throw UsageError("--write-bodies " + folder + ": " + file + " cannot be written");
        }
    }
}

}  // namespace

boost::json::object run_decode(const DecodeOptions& options) {
    const std::vector<DecodeCase> cases = make_decode_cases(options);
    if (!options.bodies_folder.empty()) {
        write_bodies(cases, options.bodies_folder);
    }
    boost::json::object report;
    report["command"] = "decode";
    report["simdjson"] = simdjson::get_active_implementation()->name();
    boost::json::array answers;
    for (const DecodeCase& of : cases) {
        answers.push_back(measure(of, options));
    }
    report["answers"] = std::move(answers);
    return report;
}

}  // namespace distilld::bench
