#include "api/job_spec_json.hpp"

#include <algorithm>
#include <array>
#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>
#include <boost/url/parse.hpp>
#include <boost/url/url_view.hpp>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "api/json_text.hpp"

namespace distilld::api {
namespace {

namespace json = boost::json;

constexpr std::size_t kPathLimit = 4096;
constexpr std::size_t kNameLimit = 128;
constexpr std::size_t kEndpointLimit = 256;
constexpr std::uint32_t kConcurrencyLimit = 1024;
constexpr std::uint64_t kStepLimit = 1'000'000'000'000;

template <class Enum>
struct EnumName {
    const char* text;
    Enum value;
};

constexpr std::array kDtypes{EnumName<Dtype>{"auto", Dtype::auto_select}, EnumName<Dtype>{"fp32", Dtype::fp32},
                             EnumName<Dtype>{"bf16", Dtype::bf16}};
constexpr std::array kInits{EnumName<StudentInit>{"pretrained", StudentInit::pretrained},
                            EnumName<StudentInit>{"random", StudentInit::random}};
constexpr std::array kProtocols{EnumName<TeacherProtocol>{"kserve", TeacherProtocol::kserve},
                                EnumName<TeacherProtocol>{"seed", TeacherProtocol::seed}};
constexpr std::array kSchedulers{EnumName<LrScheduler>{"constant", LrScheduler::constant},
                                 EnumName<LrScheduler>{"linear", LrScheduler::linear},
                                 EnumName<LrScheduler>{"cosine", LrScheduler::cosine}};

template <class Enum, std::size_t N>
const char* name_of(const std::array<EnumName<Enum>, N>& names, Enum value) noexcept {
    for (const auto& name : names) {
        if (name.value == value) return name.text;
    }
    return "unknown";
}

/// Every field, for suggestions when somebody writes one into the wrong object.
constexpr std::array<std::pair<const char*, const char*>, 52> kFields{{
    {"", "name"},
    {"", "student"},
    {"", "teacher"},
    {"", "dataset"},
    {"", "training"},
    {"", "checkpoint"},
    {"", "output"},
    {"student", "model"},
    {"student", "init"},
    {"student", "config"},
    {"student", "dtype"},
    {"teacher", "endpoints"},
    {"teacher", "protocol"},
    {"teacher", "model"},
    {"teacher", "max_concurrent"},
    {"teacher", "window"},
    {"teacher", "window_bytes"},
    {"teacher", "timeout_secs"},
    {"teacher", "startup_timeout_secs"},
    {"teacher", "top_k"},
    {"teacher", "api_key_env"},
    {"teacher", "ca_file"},
    {"teacher", "max_retries"},
    {"teacher", "hedge"},
    {"dataset", "train"},
    {"dataset", "eval"},
    {"dataset", "sequence_length"},
    {"dataset", "packing"},
    {"training", "parallel"},
    {"training", "overlap_optimizer"},
    {"training", "batch_size"},
    {"training", "micro_batches"},
    {"training", "max_steps"},
    {"training", "epochs"},
    {"training", "learning_rate"},
    {"training", "lr_scheduler_type"},
    {"training", "warmup_steps"},
    {"training", "weight_decay"},
    {"training", "max_grad_norm"},
    {"training", "adam_beta1"},
    {"training", "adam_beta2"},
    {"training", "adam_epsilon"},
    {"training", "temperature"},
    {"training", "kd_ratio"},
    {"training", "beta"},
    {"training", "seed"},
    {"training", "threads"},
    {"training", "logging_steps"},
    {"training", "eval_steps"},
    {"checkpoint", "every_steps"},
    {"checkpoint", "keep"},
    {"checkpoint", "dir"},
}};

/// Levenshtein distance; both texts are short here.
std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> row(b.size() + 1);
    for (std::size_t j = 0; j <= b.size(); ++j)
        row[j] = j;
    for (std::size_t i = 1; i <= a.size(); ++i) {
        std::size_t diagonal = row[0];
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const auto substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
            diagonal = row[j];
            row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
        }
    }
    return row[b.size()];
}

/// The closest of `candidates`, when it is close enough to be a slip of the pen.
std::optional<std::string> closest(std::string_view word, const std::vector<std::string>& candidates) {
    if (word.size() > 64) return std::nullopt;
    std::optional<std::string> best;
    std::size_t least = std::max<std::size_t>(1, word.size() / 3) + 1;
    for (const auto& candidate : candidates) {
        if (const auto distance = edit_distance(word, candidate); distance < least) {
            least = distance;
            best = candidate;
        }
    }
    return best;
}

/// A short text of a value, for messages.
std::string quote(std::string_view text) {
    constexpr std::size_t kShown = 60;
    if (text.size() <= kShown) return "'" + std::string(text) + "'";
    // Do not cut a UTF-8 sequence in two.
    std::size_t end = kShown;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U)
        --end;
    return "'" + std::string(text.substr(0, end)) + "…'";
}

std::string kind_name(const json::value& value) {
    switch (value.kind()) {
        case json::kind::null:
            return "null";
        case json::kind::bool_:
            return "a boolean";
        case json::kind::int64:
        case json::kind::uint64:
        case json::kind::double_:
            return "a number";
        case json::kind::string:
            return "a string";
        case json::kind::array:
            return "an array";
        case json::kind::object:
            return "an object";
    }
    return "something else";
}

bool has_control_character(std::string_view text) {
    return std::any_of(text.begin(), text.end(),
                       [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; });
}

bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

std::string number_text(double value) {
    json::value boxed = value;
    if (value == std::floor(value) && std::abs(value) < 1e15) boxed = static_cast<std::int64_t>(value);
    return json::serialize(boxed);
}

/// A whole number: JSON integers, and 8.0 or 1e3, which some programs write for them.
std::optional<std::uint64_t> as_unsigned(const json::value& value) {
    if (value.is_uint64()) return value.get_uint64();
    if (value.is_int64() && value.get_int64() >= 0) return static_cast<std::uint64_t>(value.get_int64());
    if (value.is_double()) {
        const double number = value.get_double();
        if (number >= 0 && number <= 9007199254740992.0 && number == std::floor(number)) {
            return static_cast<std::uint64_t>(number);
        }
    }
    return std::nullopt;
}

enum class Ends { closed, open_low, open_high };  ///< which end of a range is outside of it

/// Reads the fields of one object, notes what is wrong, and in the end refuses fields nobody asked for.
class ObjectReader {
  public:
    ObjectReader(const json::object& object, std::string pointer, std::vector<Violation>& out)
        : object_(object), pointer_(std::move(pointer)), out_(out) {}

    [[nodiscard]] std::string at(std::string_view name) const { return pointer_ + "/" + escape_pointer_token(name); }

    void violate(std::string_view name, std::string code, std::string detail) {
        out_.push_back(Violation{at(name), std::move(code), std::move(detail)});
    }

    [[nodiscard]] const json::value* find(const char* name) {
        known_.emplace_back(name);
        return object_.if_contains(name);
    }

    void wrong_type(std::string_view name, std::string_view wanted, const json::value& got) {
        violate(name, "wrong_type", std::string(wanted) + " is expected, not " + kind_name(got));
    }

    void required(const char* name, std::string_view what) {
        violate(name, "required", std::string(name) + " is required: " + std::string(what));
    }

    /// The object under `name`, or nothing (with a violation when it is something else).
    const json::object* object(const char* name) {
        const auto* value = find(name);
        if (value == nullptr) return nullptr;
        if (!value->is_object()) {
            wrong_type(name, "an object", *value);
            return nullptr;
        }
        return &value->get_object();
    }

    /// The object under `name`, or nothing (with a violation that says what it should be).
    const json::object* required_object(const char* name, std::string_view what) {
        if (find(name) != nullptr) return object(name);
        required(name, what);
        return nullptr;
    }

    /// True when the field is there and a boolean.
    bool boolean(const char* name, bool& target) {
        const auto* value = find(name);
        if (value == nullptr) return false;
        if (!value->is_bool()) {
            wrong_type(name, "a boolean", *value);
            return false;
        }
        target = value->get_bool();
        return true;
    }

    template <class Integer>
    bool integer(const char* name, Integer& target, std::uint64_t least, std::uint64_t most) {
        const auto* value = find(name);
        return value != nullptr && integer(name, *value, "a whole number", target, least, most);
    }

    template <class Integer>
    bool integer(const char* name, const json::value& value, std::string_view wanted, Integer& target,
                 std::uint64_t least, std::uint64_t most) {
        if (!value.is_number()) {
            wrong_type(name, wanted, value);
            return false;
        }
        const auto number = as_unsigned(value);
        if (!number && value.is_double() && value.get_double() != std::floor(value.get_double())) {
            violate(name, "wrong_type", std::string(wanted) + " is expected, not " + json::serialize(value));
            return false;
        }
        if (!number || *number < least || *number > most) {
            violate(name, "out_of_range",
                    json::serialize(value) + " is outside " + std::to_string(least) + " to " + std::to_string(most));
            return false;
        }
        target = static_cast<Integer>(*number);
        return true;
    }

    bool number(const char* name, double& target, double least, double most, Ends ends = Ends::closed) {
        const auto* value = find(name);
        if (value == nullptr) return false;
        if (!value->is_number()) {
            wrong_type(name, "a number", *value);
            return false;
        }
        const double number = value->to_number<double>();
        const bool low_ok = ends == Ends::open_low ? number > least : number >= least;
        const bool high_ok = ends == Ends::open_high ? number < most : number <= most;
        if (!std::isfinite(number) || !low_ok || !high_ok) {
            const auto low = (ends == Ends::open_low ? "above " : "at least ") + number_text(least);
            const auto high = (ends == Ends::open_high ? "below " : "at most ") + number_text(most);
            violate(name, "out_of_range", number_text(number) + " is out of range: it must be " + low + " and " + high);
            return false;
        }
        target = number;
        return true;
    }

    /// A text without control characters. `may_be_empty`: "" stands for "none".
    bool text(const char* name, std::string& target, std::size_t longest, bool may_be_empty) {
        const auto* value = find(name);
        if (value == nullptr) return false;
        if (!value->is_string()) {
            wrong_type(name, "a string", *value);
            return false;
        }
        const std::string_view text = value->get_string();
        if (text.empty() && !may_be_empty) {
            violate(name, "invalid_value", "must not be empty");
            return false;
        }
        if (text.size() > longest) {
            violate(name, "out_of_range", "is longer than " + std::to_string(longest) + " bytes");
            return false;
        }
        if (has_control_character(text)) {
            violate(name, "invalid_value", "must not contain control characters");
            return false;
        }
        target = text;
        return true;
    }

    template <class Enum, std::size_t N>
    bool one_of(const char* name, const std::array<EnumName<Enum>, N>& names, Enum& target) {
        const auto* value = find(name);
        if (value == nullptr) return false;
        if (!value->is_string()) {
            wrong_type(name, "a string", *value);
            return false;
        }
        const std::string_view text = value->get_string();
        std::string all;
        std::vector<std::string> candidates;
        for (const auto& candidate : names) {
            if (text == candidate.text) {
                target = candidate.value;
                return true;
            }
            all += (all.empty() ? "\"" : ", \"") + std::string(candidate.text) + "\"";
            candidates.emplace_back(candidate.text);
        }
        auto detail = quote(text) + " is not one of " + all;
        if (const auto near = closest(text, candidates)) detail += "; did you mean \"" + *near + "\"?";
        violate(name, "invalid_value", std::move(detail));
        return false;
    }

    /// Refuses every field that no call above asked for.
    void finish() {
        for (const auto& member : object_) {
            const std::string_view key = member.key();
            if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
            auto detail = "unknown field " + quote(key);
            if (const auto near = closest(key, known_)) {
                detail += "; did you mean \"" + *near + "\"?";
            } else if (const auto elsewhere = place_of(key)) {
                detail += "; did you mean " + *elsewhere + "?";
            }
            violate(key, "unknown_field", std::move(detail));
        }
    }

  private:
    static std::optional<std::string> place_of(std::string_view key) {
        for (const auto& [section, field] : kFields) {
            if (key == field) return (*section == '\0' ? "" : "/" + std::string(section)) + "/" + field;
        }
        return std::nullopt;
    }

    const json::object& object_;
    std::string pointer_;
    std::vector<Violation>& out_;
    std::vector<std::string> known_;
};

void read_name(ObjectReader& root, JobSpec& spec) {
    spec.name = "job";
    std::string name;
    if (!root.text("name", name, kNameLimit, false)) return;
    const auto allowed = [](char c) {
        return is_letter(c) || is_digit(c) || c == ' ' || c == '.' || c == '_' || c == '-' || c == ':';
    };
    if (!std::all_of(name.begin(), name.end(), allowed) || !(is_letter(name.front()) || is_digit(name.front()))) {
        root.violate("name", "invalid_value",
                     "must begin with a letter or digit and consist of letters, digits, spaces and . _ - :");
        return;
    }
    spec.name = std::move(name);
}

void read_student(ObjectReader& root, JobSpec& spec, std::vector<Violation>& out) {
    const auto* object = root.required_object("student", "an object with model (a Hugging Face folder)");
    if (object == nullptr) return;
    ObjectReader reader(*object, "/student", out);
    auto& student = spec.student;
    const bool has_model = reader.find("model") != nullptr;
    reader.text("model", student.model, kPathLimit, false);
    reader.one_of("init", kInits, student.init);
    const bool has_config = reader.find("config") != nullptr;
    if (const auto* config = reader.object("config")) student.config_json = json::serialize(*config);
    reader.one_of("dtype", kDtypes, student.dtype);
    if (!has_model && student.init == StudentInit::pretrained) {
        reader.required("model", "the Hugging Face folder of the student");
    } else if (!has_model && !has_config) {
        reader.required("model", "init \"random\" needs a model folder or a config");
    }
    reader.finish();
}

void check_endpoint(ObjectReader& reader, std::size_t index, const json::value& value, std::set<std::string>& seen,
                    TeacherSpec& teacher, std::vector<Violation>& out) {
    const auto pointer = reader.at("endpoints") + "/" + std::to_string(index);
    const auto violate = [&](std::string code, std::string detail) {
        out.push_back(Violation{pointer, std::move(code), std::move(detail)});
    };
    if (!value.is_string()) {
        violate("wrong_type", "a string (a URL) is expected, not " + kind_name(value));
        return;
    }
    const std::string text(value.get_string());
    const auto url = boost::urls::parse_uri(text);
    if (!url || text.size() > kPathLimit) {
        violate("invalid_value", quote(text) + " is not a URL such as http://host:8000");
        return;
    }
    if (url->scheme() != "http" && url->scheme() != "https") {
        violate("invalid_value", quote(text) + " is neither http nor https");
    } else if (url->encoded_host().empty()) {
        violate("invalid_value", quote(text) + " has no host");
    } else if (url->has_port() && (url->port_number() == 0 || url->port().empty())) {
        violate("invalid_value", quote(text) + " has a port that is not 1 to 65535");
    } else if (url->has_userinfo()) {
        violate("invalid_value", "must not carry a user name or password: name a variable in api_key_env");
    } else if (url->has_fragment()) {
        violate("invalid_value", quote(text) + " has a fragment (#…), which is never sent");
    } else if (!seen.insert(text).second) {
        violate("conflict", quote(text) + " is listed twice");
    } else {
        teacher.endpoints.push_back(text);
    }
}

void read_endpoints(ObjectReader& reader, TeacherSpec& teacher, std::vector<Violation>& out) {
    const auto* value = reader.find("endpoints");
    if (value == nullptr) {
        reader.required("endpoints", "a list of http or https URLs");
        return;
    }
    if (!value->is_array()) {
        reader.wrong_type("endpoints", "an array of URLs", *value);
        return;
    }
    const auto& array = value->get_array();
    if (array.empty()) {
        reader.violate("endpoints", "invalid_value", "must not be empty");
        return;
    }
    if (array.size() > kEndpointLimit) {
        reader.violate("endpoints", "out_of_range", "lists more than " + std::to_string(kEndpointLimit) + " endpoints");
        return;
    }
    std::set<std::string> seen;
    for (std::size_t i = 0; i < array.size(); ++i)
        check_endpoint(reader, i, array[i], seen, teacher, out);
}

void read_concurrency(ObjectReader& reader, ConcurrencySpec& target) {
    const auto* value = reader.find("max_concurrent");
    if (value == nullptr) return;
    if (value->is_string()) {
        if (value->get_string() == "auto") {
            target = ConcurrencySpec{true, kConcurrencyLimit};
        } else {
            reader.violate("max_concurrent", "invalid_value",
                           quote(value->get_string()) + " is neither \"auto\" nor a whole number");
        }
        return;
    }
    reader.integer("max_concurrent", *value, "\"auto\" or a whole number", target.limit, 1, kConcurrencyLimit);
}

void read_teacher(ObjectReader& root, JobSpec& spec, std::vector<Violation>& out) {
    const auto* object = root.object("teacher");
    if (object == nullptr) return;
    ObjectReader reader(*object, "/teacher", out);
    TeacherSpec teacher;
    read_endpoints(reader, teacher, out);
    reader.one_of("protocol", kProtocols, teacher.protocol);
    reader.text("model", teacher.model, 256, false);
    read_concurrency(reader, teacher.max_concurrent);
    reader.integer("window", teacher.window, 0, 1U << 20);
    reader.integer("window_bytes", teacher.window_bytes, 1, 1ULL << 50);
    reader.number("timeout_secs", teacher.timeout_secs, 0, 86400, Ends::open_low);
    reader.number("startup_timeout_secs", teacher.startup_timeout_secs, 0, 86400);
    reader.integer("top_k", teacher.top_k, 0, 65536);
    if (reader.text("api_key_env", teacher.api_key_env, 256, true) && !teacher.api_key_env.empty()) {
        const auto& name = teacher.api_key_env;
        const bool good = !is_digit(name.front()) && std::all_of(name.begin(), name.end(), [](char c) {
            return is_letter(c) || is_digit(c) || c == '_';
        });
        // The value is not echoed: people paste the key itself here.
        if (!good) reader.violate("api_key_env", "invalid_value", "is not the name of an environment variable");
    }
    reader.text("ca_file", teacher.ca_file, kPathLimit, true);
    reader.integer("max_retries", teacher.max_retries, 0, 1000);
    reader.boolean("hedge", teacher.hedge);
    reader.finish();
    spec.teacher = std::move(teacher);
}

void read_dataset(ObjectReader& root, JobSpec& spec, std::vector<Violation>& out) {
    const auto* object = root.required_object("dataset", "an object with train (a JSONL file) and sequence_length");
    if (object == nullptr) return;
    ObjectReader reader(*object, "/dataset", out);
    auto& dataset = spec.dataset;
    if (reader.find("train") == nullptr) reader.required("train", "the JSONL file to train on");
    reader.text("train", dataset.train, kPathLimit, false);
    reader.text("eval", dataset.eval, kPathLimit, true);
    if (reader.find("sequence_length") == nullptr) {
        reader.required("sequence_length", "input positions of a row, at least 1");
    }
    reader.integer("sequence_length", dataset.sequence_length, 1, 1U << 20);
    reader.boolean("packing", dataset.packing);
    reader.finish();
}

void read_batch_size(ObjectReader& reader, TrainingSpec& training) {
    const auto* value = reader.find("batch_size");
    if (value == nullptr) return;
    if (value->is_string()) {
        if (value->get_string() == "auto") {
            training.batch_size_auto = true;
        } else {
            reader.violate("batch_size", "invalid_value",
                           quote(value->get_string()) + " is neither \"auto\" nor a whole number");
        }
        return;
    }
    reader.integer("batch_size", *value, "\"auto\" or a whole number", training.batch_size, 1, 65536);
}

void read_length(ObjectReader& reader, TrainingSpec& training) {
    const bool has_steps = reader.find("max_steps") != nullptr;
    const bool has_epochs = reader.find("epochs") != nullptr;
    std::uint64_t steps = 0;
    if (reader.integer("max_steps", steps, 1, kStepLimit)) training.max_steps = steps;
    double epochs = 0;
    if (reader.number("epochs", epochs, 0, 1e6, Ends::open_low)) training.epochs = epochs;
    if (has_steps && has_epochs) {
        reader.violate("epochs", "conflict", "give max_steps or epochs, not both");
    } else if (!has_steps && !has_epochs) {
        reader.required("max_steps", "give max_steps or epochs");
    }
}

void read_training(ObjectReader& root, JobSpec& spec, bool has_teacher, std::vector<Violation>& out) {
    const auto* object = root.required_object("training", "an object with at least max_steps or epochs");
    if (object == nullptr) return;
    ObjectReader reader(*object, "/training", out);
    auto& training = spec.training;
    reader.boolean("parallel", training.parallel);
    reader.boolean("overlap_optimizer", training.overlap_optimizer);
    read_batch_size(reader, training);
    reader.integer("micro_batches", training.micro_batches, 1, 65536);
    read_length(reader, training);
    reader.number("learning_rate", training.learning_rate, 0, 100);
    reader.one_of("lr_scheduler_type", kSchedulers, training.lr_scheduler_type);
    reader.integer("warmup_steps", training.warmup_steps, 0, kStepLimit);
    reader.number("weight_decay", training.weight_decay, 0, 100);
    reader.number("max_grad_norm", training.max_grad_norm, 0, 1e9);
    reader.number("adam_beta1", training.adam_beta1, 0, 1, Ends::open_high);
    reader.number("adam_beta2", training.adam_beta2, 0, 1, Ends::open_high);
    reader.number("adam_epsilon", training.adam_epsilon, 0, 1, Ends::open_low);
    reader.number("temperature", training.temperature, 0, 1000, Ends::open_low);
    training.kd_ratio = has_teacher ? 1.0 : 0.0;
    if (reader.number("kd_ratio", training.kd_ratio, 0, 1) && training.kd_ratio > 0 && !has_teacher) {
        reader.violate("kd_ratio", "conflict", "is above 0, but the spec has no teacher");
    }
    if (reader.number("beta", training.beta, 0, 1) && training.beta != 0) {
        reader.violate("beta", "unsupported", "only 0 (forward KL) is supported");
    }
    reader.integer("seed", training.seed, 0, std::numeric_limits<std::uint64_t>::max());
    reader.integer("threads", training.threads, 0, 4096);
    reader.integer("logging_steps", training.logging_steps, 1, kStepLimit);
    reader.integer("eval_steps", training.eval_steps, 0, kStepLimit);
    reader.finish();
}

void read_checkpoint(ObjectReader& root, JobSpec& spec, std::vector<Violation>& out) {
    const auto* object = root.object("checkpoint");
    if (object == nullptr) return;
    ObjectReader reader(*object, "/checkpoint", out);
    reader.integer("every_steps", spec.checkpoint.every_steps, 0, kStepLimit);
    reader.integer("keep", spec.checkpoint.keep, 1, 1000);
    reader.text("dir", spec.checkpoint.dir, kPathLimit, true);
    reader.finish();
}

/// "a/b/" and "a/./b" are one folder.
std::filesystem::path normal(const std::string& text) {
    auto path = std::filesystem::path(text).lexically_normal();
    if (!path.has_filename() && path.has_parent_path() && path != path.root_path()) path = path.parent_path();
    return path;
}

void read_output(ObjectReader& root, JobSpec& spec) {
    if (root.find("output") == nullptr) root.required("output", "the folder that takes the trained student");
    if (!root.text("output", spec.output, kPathLimit, false)) return;
    if (!spec.student.model.empty() && normal(spec.output) == normal(spec.student.model)) {
        root.violate("output", "conflict", "is the folder of student.model, which would be overwritten");
    }
}

std::string absolute(const std::string& text, const std::filesystem::path& base) {
    if (text.empty()) return text;
    return normal((base / text).string()).string();
}

// ---- overrides ----

json::value value_of_override(const std::string& text) {
    if (auto parsed = parse_json_text(text, kSpecDepthLimit)) return *std::move(parsed);
    return json::string(text);
}

std::optional<std::size_t> index_of(const std::string& token) {
    if (token.empty() || token.size() > 9 || !std::all_of(token.begin(), token.end(), is_digit)) return std::nullopt;
    if (token.size() > 1 && token.front() == '0') return std::nullopt;
    return std::stoul(token);
}

Error override_error(const std::string& pointer, const std::string& what) {
    return invalid_input("--set " + pointer + ": " + what);
}

/// Steps from `parent` to the child that `token` names; makes missing objects.
Result<json::value*> step_into(json::value& parent, const std::string& token, const std::string& pointer) {
    if (auto* object = parent.if_object()) {
        auto& child = (*object)[token];
        if (child.is_null()) child.emplace_object();
        return &child;
    }
    if (auto* array = parent.if_array()) {
        const auto index = index_of(token);
        if (!index || *index >= array->size())
            return override_error(pointer, "'" + token + "' is no index of the array");
        return &(*array)[*index];
    }
    return override_error(pointer, "the parent of '" + token + "' is " + kind_name(parent) + ", not an object");
}

Result<void> assign(json::value& parent, const std::string& token, json::value value, const std::string& pointer) {
    if (auto* object = parent.if_object()) {
        if (value.is_null()) {
            object->erase(token);
        } else {
            (*object)[token] = std::move(value);
        }
        return {};
    }
    if (auto* array = parent.if_array()) {
        const auto index = token == "-" ? std::optional(array->size()) : index_of(token);
        if (!index || *index > array->size()) {
            return override_error(pointer, "'" + token + "' is no index of the array");
        }
        if (*index == array->size()) {
            array->push_back(std::move(value));
        } else {
            (*array)[*index] = std::move(value);
        }
        return {};
    }
    return override_error(pointer, "the parent of '" + token + "' is " + kind_name(parent) + ", not an object");
}

Result<void> apply_one(json::value& document, const Override& change) {
    const auto tokens = split_pointer(change.first);
    if (!tokens) return override_error(change.first, tokens.error().message);
    if (tokens->empty()) return override_error(change.first, "the pointer names the whole document, not a field");
    auto* parent = &document;
    for (std::size_t i = 0; i + 1 < tokens->size(); ++i) {
        auto child = step_into(*parent, (*tokens)[i], change.first);
        if (!child) return child.error();
        parent = *child;
    }
    return assign(*parent, tokens->back(), value_of_override(change.second), change.first);
}

}  // namespace

std::string describe(const SpecViolations& violations) {
    std::string text;
    for (const auto& violation : violations.violations) {
        if (!text.empty()) text += '\n';
        text += (violation.pointer.empty() ? "(document)" : violation.pointer) + ": " + violation.detail;
    }
    return text;
}

void throw_exception_from_error(const SpecViolations& violations, const boost::source_location&) {
    throw ErrorException(invalid_input("the job spec is not valid:\n" + describe(violations)));
}

ParsedSpec parse_job_spec(std::string_view text) {
    SpecViolations result;
    auto& out = result.violations;
    if (text.size() > kSpecSizeLimit) {
        out.push_back({"", "too_large", "the spec is longer than " + std::to_string(kSpecSizeLimit) + " bytes"});
        return result;
    }
    const auto document = parse_json_text(text, kSpecDepthLimit);
    if (!document) {
        out.push_back({"", "malformed_json", "not JSON: " + document.error().reason});
        return result;
    }
    if (!document->is_object()) {
        out.push_back({"", "wrong_type", "an object is expected, not " + kind_name(*document)});
        return result;
    }
    for (auto& pointer : duplicate_keys(text, kSpecDepthLimit)) {
        out.push_back({std::move(pointer), "duplicate_key", "stands more than once in its object"});
    }
    JobSpec spec;
    ObjectReader root(document->get_object(), "", out);
    read_name(root, spec);
    read_student(root, spec, out);
    read_teacher(root, spec, out);
    read_dataset(root, spec, out);
    read_training(root, spec, document->get_object().contains("teacher"), out);
    read_checkpoint(root, spec, out);
    read_output(root, spec);
    root.finish();
    if (!out.empty()) return result;
    return spec;
}

json::object to_json_object(const JobSpec& spec) {
    json::object student;
    if (!spec.student.model.empty()) student["model"] = spec.student.model;
    student["init"] = to_string(spec.student.init);
    if (spec.student.config_json) {
        auto config = parse_json_text(*spec.student.config_json, kSpecDepthLimit);
        if (!config) throw ErrorException(invalid_input("/student/config: not JSON: " + config.error().reason));
        student["config"] = *std::move(config);
    }
    student["dtype"] = to_string(spec.student.dtype);

    json::object root;
    root["name"] = spec.name;
    root["student"] = std::move(student);
    if (spec.teacher) {
        const auto& teacher = *spec.teacher;
        json::object object;
        object["endpoints"] = json::array(teacher.endpoints.begin(), teacher.endpoints.end());
        object["protocol"] = to_string(teacher.protocol);
        object["model"] = teacher.model;
        if (teacher.max_concurrent.automatic) {
            object["max_concurrent"] = "auto";
        } else {
            object["max_concurrent"] = teacher.max_concurrent.limit;
        }
        object["window"] = teacher.window;
        object["window_bytes"] = teacher.window_bytes;
        object["timeout_secs"] = teacher.timeout_secs;
        object["startup_timeout_secs"] = teacher.startup_timeout_secs;
        object["top_k"] = teacher.top_k;
        if (!teacher.api_key_env.empty()) object["api_key_env"] = teacher.api_key_env;
        if (!teacher.ca_file.empty()) object["ca_file"] = teacher.ca_file;
        object["max_retries"] = teacher.max_retries;
        object["hedge"] = teacher.hedge;
        root["teacher"] = std::move(object);
    }

    json::object dataset;
    dataset["train"] = spec.dataset.train;
    if (!spec.dataset.eval.empty()) dataset["eval"] = spec.dataset.eval;
    dataset["sequence_length"] = spec.dataset.sequence_length;
    dataset["packing"] = spec.dataset.packing;
    root["dataset"] = std::move(dataset);

    const auto& training = spec.training;
    json::object object;
    object["parallel"] = training.parallel;
    object["overlap_optimizer"] = training.overlap_optimizer;
    if (training.batch_size_auto) {
        object["batch_size"] = "auto";
    } else {
        object["batch_size"] = training.batch_size;
    }
    object["micro_batches"] = training.micro_batches;
    if (training.max_steps) object["max_steps"] = *training.max_steps;
    if (training.epochs) object["epochs"] = *training.epochs;
    object["learning_rate"] = training.learning_rate;
    object["lr_scheduler_type"] = to_string(training.lr_scheduler_type);
    object["warmup_steps"] = training.warmup_steps;
    object["weight_decay"] = training.weight_decay;
    object["max_grad_norm"] = training.max_grad_norm;
    object["adam_beta1"] = training.adam_beta1;
    object["adam_beta2"] = training.adam_beta2;
    object["adam_epsilon"] = training.adam_epsilon;
    object["temperature"] = training.temperature;
    object["kd_ratio"] = spec.teacher ? training.kd_ratio : 0.0;
    object["beta"] = training.beta;
    object["seed"] = training.seed;
    object["threads"] = training.threads;
    object["logging_steps"] = training.logging_steps;
    object["eval_steps"] = training.eval_steps;
    root["training"] = std::move(object);

    object = json::object{{"every_steps", spec.checkpoint.every_steps}, {"keep", spec.checkpoint.keep}};
    if (!spec.checkpoint.dir.empty()) object["dir"] = spec.checkpoint.dir;
    root["checkpoint"] = std::move(object);
    root["output"] = spec.output;
    return root;
}

std::string to_json(const JobSpec& spec) {
    return json::serialize(to_json_object(spec));
}

void make_paths_absolute(JobSpec& spec, const std::filesystem::path& base) {
    spec.student.model = absolute(spec.student.model, base);
    spec.dataset.train = absolute(spec.dataset.train, base);
    spec.dataset.eval = absolute(spec.dataset.eval, base);
    spec.output = absolute(spec.output, base);
    spec.checkpoint.dir = absolute(spec.checkpoint.dir, base);
    if (spec.teacher) spec.teacher->ca_file = absolute(spec.teacher->ca_file, base);
}

Result<std::string> apply_overrides(std::string_view json_text, const std::vector<Override>& overrides) {
    if (json_text.size() > kSpecSizeLimit) {
        return invalid_input("the spec is longer than " + std::to_string(kSpecSizeLimit) + " bytes");
    }
    auto document = parse_json_text(json_text, kSpecDepthLimit);
    if (!document) return invalid_input("the spec is not JSON: " + document.error().reason);
    // The value read has one of the two already: laying changes over it would hide the mistake.
    if (const auto twice = duplicate_keys(json_text, kSpecDepthLimit); !twice.empty()) {
        return invalid_input(twice.front() + ": stands more than once in its object");
    }
    for (const auto& change : overrides) {
        if (auto done = apply_one(*document, change); !done) return done.error();
    }
    return json::serialize(*document);
}

Result<Override> parse_override(std::string_view text) {
    const auto equals = text.find('=');
    if (equals == std::string_view::npos || text.empty() || text.front() != '/') {
        return invalid_input("--set " + std::string(text) + ": /json/pointer=value is expected");
    }
    return Override{std::string(text.substr(0, equals)), std::string(text.substr(equals + 1))};
}

const char* to_string(Dtype value) noexcept {
    return name_of(kDtypes, value);
}
const char* to_string(StudentInit value) noexcept {
    return name_of(kInits, value);
}
const char* to_string(TeacherProtocol value) noexcept {
    return name_of(kProtocols, value);
}
const char* to_string(LrScheduler value) noexcept {
    return name_of(kSchedulers, value);
}

}  // namespace distilld::api
