#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/kinds/violation.hpp"

/// Kinds of values: which values a field accepts, how they are read, written and described. field_kinds.hpp binds them
/// to members. Values are passed as JSON, which also expresses those of TOML and command lines. Immutable, any thread.
namespace distilld::api {

/// Reports a violation of one field.
struct FieldReport {
    std::string_view pointer;
    std::vector<Violation>& violations;
    bool hides_values = false;  ///< messages never quote the value, which may be a secret

    void violate(std::string code, std::string detail) const;
    void wrong_type(std::string_view wanted, const boost::json::value& got) const;
};

/// How to interpret the words of a command line or of an environment variable.
enum class FieldShape { text, boolean, list_of_texts, json };

/// What a job does with a file or folder of its spec. This decides which other jobs may use the path at the same time
/// (server/jobs/checks/path_claims.hpp).
enum class PathUse {
    reads,
    shares,  ///< reads, or writes in agreement with other jobs: a store of answers
    writes,  ///< exclusively
};

class ValueKind {
  public:
    virtual ~ValueKind() = default;

    /// The value in its stored form: 8388608 for "8MiB". If it is invalid, returns nullopt and reports the reason.
    [[nodiscard]] virtual std::optional<boost::json::value> read(const boost::json::value& value,
                                                                 const FieldReport& report) const = 0;
    /// A stored value in a form that read() accepts.
    [[nodiscard]] virtual boost::json::value write(boost::json::value kept) const { return kept; }
    /// The same in the form for people: "8MiB".
    [[nodiscard]] virtual boost::json::value show(boost::json::value kept) const { return write(std::move(kept)); }

    /// JSON schema (2020-12, as in OpenAPI 3.1) of the value, without its default.
    [[nodiscard]] virtual boost::json::object schema() const = 0;
    /// The values in a few words of Markdown: "1–65536".
    [[nodiscard]] virtual std::string values() const = 0;
    /// The same without Markdown: "1 to 65536".
    [[nodiscard]] virtual std::string plain_values() const { return values(); }
    /// What must be given: "a whole number from 1 to 65536".
    [[nodiscard]] virtual std::string wanted() const { return plain_values(); }
    /// The placeholder for the value in the help of a flag: "N", "DIR", "{debug,info}".
    [[nodiscard]] virtual std::string type_name() const { return "VALUE"; }
    [[nodiscard]] virtual FieldShape shape() const { return FieldShape::json; }
    /// Set if the texts are files or folders.
    [[nodiscard]] virtual std::optional<PathUse> path_use() const { return std::nullopt; }

    /// Converts words to a value, which read() then checks.
    [[nodiscard]] boost::json::value value_of(const std::vector<std::string>& words) const;

  protected:
    /// `detail` may quote the value; for hidden values, wanted() is used instead.
    std::nullopt_t refuse(const FieldReport& report, const char* code, const std::string& detail,
                          const std::string& hint = "") const;
};

using ValueKindPtr = std::shared_ptr<const ValueKind>;

inline constexpr std::size_t kMaxPathBytes = 4096;

/// A form that a text must have. `complaint` does not quote the text, which may be a secret.
struct TextForm {
    /// ECMAScript regular expression for the whole text. With `check`, it only describes the form. May be null.
    const char* pattern = nullptr;
    const char* values = "text";      ///< a description for the documentation
    const char* complaint = nullptr;  ///< the message for a text that does not match
    const char* format = nullptr;     ///< `format` in JSON schema; may be null
    /// Returns what is wrong with a text, or an empty text. May be null.
    std::string (*check)(const std::string& text) = nullptr;
};

struct TextRange {
    std::size_t max_bytes = kMaxPathBytes;
    bool may_be_empty = false;       ///< "" stands for "none"
    const TextForm* form = nullptr;  ///< for texts that are not empty
    bool may_break_lines = false;    ///< line feeds and tabs are allowed
    const char* type_name = "TEXT";
    std::optional<PathUse> use = std::nullopt;  ///< for files and folders
    const char* what = nullptr;                 ///< the kind of file or folder, for messages
};

struct ListRange {
    TextRange text = {};  ///< for each element
    std::size_t max_count = 1000;
    std::size_t min_count = 0;
    const char* if_too_few = "must not be empty";
    bool unique = false;
    bool one_alone = false;  ///< a single text may be given, and is written, without a list
};

struct IntegerRange {
    std::int64_t min = 0;
    std::uint64_t max = std::numeric_limits<std::uint64_t>::max();
};

enum class Ends { closed, open_min, open_max };  ///< which end of the range is excluded

struct NumberRange {
    double min = 0;
    double max = 1;
    Ends ends = Ends::closed;
};

[[nodiscard]] ValueKindPtr text_kind(TextRange range);
[[nodiscard]] ValueKindPtr list_kind(ListRange range);
[[nodiscard]] ValueKindPtr integer_kind(IntegerRange range);
/// A whole number, or "auto".
[[nodiscard]] ValueKindPtr integer_or_auto_kind(IntegerRange range);
/// Bytes: a whole number, or a text with a unit ("8MiB").
[[nodiscard]] ValueKindPtr size_kind(IntegerRange range);
/// Kept in milliseconds: a number of seconds, or a text with a unit ("500ms", "5m").
[[nodiscard]] ValueKindPtr duration_kind(std::chrono::milliseconds min, std::chrono::milliseconds max);
[[nodiscard]] ValueKindPtr number_kind(NumberRange range);
/// Kept in seconds, in the forms of duration_kind().
[[nodiscard]] ValueKindPtr seconds_kind(NumberRange range);
[[nodiscard]] ValueKindPtr boolean_kind();
[[nodiscard]] ValueKindPtr choice_kind(std::vector<std::string> names);
/// A name, or true and false for two of the names.
[[nodiscard]] ValueKindPtr choice_or_boolean_kind(std::vector<std::string> names, std::string when_true,
                                                  std::string when_false);
/// Any object.
[[nodiscard]] ValueKindPtr object_kind();

/// http or https, without user name, password and fragment.
extern const TextForm kUrlForm;

}  // namespace distilld::api
