#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace distilld::fuzz {

/// Something that reads what others write. One row of targets() and one file.
struct Target {
    const char* name;
    /// Reads the input, and aborts where a promise about it is broken.
    void (*read)(std::string_view input);
    /// Inputs to begin with, that take it far in.
    std::vector<std::string> (*seeds)();
};

[[nodiscard]] const std::vector<Target>& targets();

/// Aborts with the words where it does not hold: libFuzzer then keeps the input.
void demand(bool holds, const char* what);

/// Of inputs that are several files or lines.
inline constexpr std::string_view kBorder = "\n\x1e\n";
[[nodiscard]] std::vector<std::string_view> parts_of(std::string_view input);

/// Keeps what there is to say of a result from being optimised away, and demands that refusals have words.
template <class Outcome>
bool accepted(const Outcome& outcome) {
    if (!outcome) {
        demand(!outcome.error().message.empty(), "a refusal has words");
    }
    return static_cast<bool>(outcome);
}

/// Each is one row.
void read_request(std::string_view input);
std::vector<std::string> request_seeds();
void read_answer(std::string_view input);
std::vector<std::string> answer_seeds();
void read_spec(std::string_view input);
std::vector<std::string> spec_seeds();
void read_safetensors(std::string_view input);
std::vector<std::string> safetensors_seeds();
void read_store(std::string_view input);
std::vector<std::string> store_seeds();
void read_checkpoint(std::string_view input);
std::vector<std::string> checkpoint_seeds();
void read_messages(std::string_view input);
std::vector<std::string> message_seeds();
void read_link(std::string_view input);
std::vector<std::string> link_seeds();
void read_slurm(std::string_view input);
std::vector<std::string> slurm_seeds();
void read_completions(std::string_view input);
std::vector<std::string> completion_seeds();
void read_printed(std::string_view input);
std::vector<std::string> printed_seeds();

}  // namespace distilld::fuzz
