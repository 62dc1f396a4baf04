// The configuration of tandemd: one TOML file, one struct, defaults in the struct. It is immutable
// after start. Every key, its bounds and its one-line meaning stand once, in config_keys.cpp; the
// parser, `tandemctl config show`, the default file in packaging/ and the reference page
// docs/configuration.md are made from that table.
//
// parse_config is pure and takes untrusted text (it is fuzzed); all problems are reported together,
// with line numbers. Any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "policies/profile.h"

namespace tandem::service {

using Duration = std::chrono::milliseconds;
// A table of names and texts; numbers and booleans of the file as their text.
using ConfigTable = std::map<std::string, std::string>;

struct ServerConfig {
  std::string listen = "127.0.0.1:8080";
  std::vector<std::string> hosts;
  bool require_key = true;
  std::string admin_socket = "admin.sock";
  std::string admin_group;
  std::string state_dir = "state";
  std::string run_dir = "run";
  std::string log_level = "info";
};

struct LimitsConfig {
  int64_t streams = 128;
  int64_t connections = 4096;
  int64_t connections_per_address = 4096;
  int64_t body_bytes = int64_t{32} << 20;
  Duration header_deadline = std::chrono::seconds(10);
  Duration body_deadline = std::chrono::seconds(60);
  Duration idle_deadline = std::chrono::seconds(75);
  Duration request_deadline = std::chrono::hours(1);
  Duration drain_deadline = std::chrono::seconds(30);
  int64_t record_rows = 1'000'000;
  int64_t stored_bytes = int64_t{256} << 20;
  int64_t stored_bytes_per_key = int64_t{64} << 20;
  Duration stored_time = std::chrono::hours(720);
};

struct EnginesConfig {
  std::string launcher = "child";
  std::string binary;
  std::string relay;
  std::string systemctl = "systemctl";
  bool outlive = false;
  Duration hello_deadline = std::chrono::seconds(10);
  Duration load_deadline = std::chrono::minutes(30);
  Duration trial_deadline = std::chrono::seconds(20);
  Duration drain_deadline = std::chrono::seconds(60);
  Duration stop_deadline = std::chrono::seconds(10);
  int64_t restarts = 3;
  Duration restart_window = std::chrono::minutes(10);
  Duration restart_backoff = std::chrono::seconds(1);
  Duration silence_deadline = std::chrono::seconds(60);
};

// Floors of available memory (rule U11); 0: from the box's memory. See service/memory_floors.h.
struct MemoryConfig {
  int64_t yellow_bytes = 0;
  int64_t orange_bytes = 0;
  int64_t red_bytes = 0;
  int64_t black_bytes = 0;
  int64_t floor_bytes = 0;
  Duration calm = std::chrono::minutes(5);
  std::string reclaim = "auto";
};

// The process that watches the host's memory (docs/memory.md).
struct GuardConfig {
  std::string mode = "auto";
  std::string binary;
  std::string watchdog;
};

// The measure of what the default model loses to its neighbour (docs/cotenancy.md).
struct CanaryConfig {
  std::string mode = "on";
  Duration every = std::chrono::hours(1);
  int64_t loss_percent = 10;
};

// How two engines share the device (docs/lease.md).
struct LeaseConfig {
  std::string mode = "on";
  int64_t quantum_us = 0;
  int64_t floor_percent = 15;
};

// The rules of docs/sanitizer.md, for all models.
struct SanitizerConfig {
  std::vector<std::string> off;
  int64_t short_call_limit_tokens = 512;
  int64_t answer_reserve_tokens = 256;
  int64_t unavoidable_reasoning_reserve_tokens = 512;
  int64_t default_max_tokens = 4096;
  bool foreign_script_retry = true;
};

// The order of those that wait for a model (docs/queues.md).
struct QueueConfig {
  int64_t key_share_percent = 75;
  int64_t batch_floor_percent = 10;
  std::vector<std::string> batch_keys;
  std::vector<std::string> key_weights;
  Duration deadline{0};
};

struct ModelConfig {
  std::string name;
  std::string file;
  std::vector<std::string> aliases;
  int64_t context_tokens = 8192;
  int64_t slots = 4;
  int64_t kv_bytes = 0;
  std::string prefix_cache = "per_key";
  int64_t checkpoint_bytes = 0;
  int64_t batch_tokens = 512;
  int64_t prompt_tokens_max = 0;
  int64_t threads = 0;
  int64_t queue_max = 64;
  int64_t memory_limit_bytes = 0;
  std::string load = "auto";
  bool commit = true;
  // Facts of its chat template; "auto" leaves each to the probe (service/model_profile.h).
  std::string family = "auto";
  std::string system_messages = "auto";
  std::string needs_user = "auto";
  std::string alternates = "auto";
  std::string thinking = "auto";
  std::string thinks_by_default = "auto";
  std::string effort = "auto";
  std::string history_thoughts = "auto";
  std::string tool_syntax = "auto";
  // Whole rows (R26); nothing: the built-in row of the model.
  std::optional<policies::SamplingRow> sampling_thinking;
  std::optional<policies::SamplingRow> sampling_direct;
  std::vector<std::string> sanitizer_off;
  // The engine, and what is said of one that is not ours (docs/engines.md).
  std::string engine = "tandem";
  std::vector<std::string> command;
  std::vector<std::string> arguments;
  ConfigTable environment;
  std::vector<std::string> stop_command;
  std::string working_directory;
  std::string repository;
  std::string served_model;
  int64_t port = 0;
  std::vector<std::string> urls;
  std::string key_file;
  std::vector<std::string> allow_keys;
  std::vector<std::string> allow_classes;
  std::string prompts = "auto";
  ConfigTable dialect;
  int64_t weights_bytes = 0;
  int64_t load_peak_bytes = 0;
  int64_t workspace_bytes = 0;
  Duration start_deadline{0};
  Duration health_every = std::chrono::seconds(30);

  // Started through tandem-relay, which speaks our protocol for it.
  [[nodiscard]] bool is_foreign() const { return engine != "tandem"; }
  [[nodiscard]] bool is_remote() const { return engine == "remote"; }
};

struct Config {
  ServerConfig server;
  LimitsConfig limits;
  EnginesConfig engines;
  MemoryConfig memory;
  GuardConfig guard;
  CanaryConfig canary;
  LeaseConfig lease;
  SanitizerConfig sanitizer;
  QueueConfig queue;
  ModelConfig default_model;
  std::optional<ModelConfig> optional_model;
};

struct ConfigProblem {
  int64_t line = 0;  // 1-based; 0: the file as a whole
  std::string key;   // dotted, such as model.default.slots; may be empty
  std::string message;
};

struct ParsedConfig {
  Config config;  // usable only when there are no problems
  std::vector<ConfigProblem> problems;  // by line
};

// Relative paths in the file are resolved against `base_dir` (the file's own directory), the admin
// socket against run_dir.
ParsedConfig parse_config(std::string_view text, const std::string& base_dir);

// Reads and parses. Error: io, or invalid_argument whose message lists all problems, one a line, as
// "FILE:LINE: KEY: MESSAGE".
Result<Config> load_config(const std::string& path);
std::string problems_text(const std::string& path, const std::vector<ConfigProblem>& problems);

// The resolved configuration: TOML text that parses back to the same, and JSON. Values of an environment
// whose name says that they are secret are shown as "(hidden)" in both.
std::string config_to_toml(const Config& config);
Json config_to_json(const Config& config);
// The commented file with all defaults (packaging/tandem.toml) and the table of docs/configuration.md.
std::string config_default_file();
std::string config_reference_table();

// Of key_weights: "KEY:WEIGHT". Error: invalid_argument with the entry.
Result<std::map<std::string, double, std::less<>>> parse_key_weights(const std::vector<std::string>& entries);

struct ListenAddress {
  std::string host;
  uint16_t port = 0;
  bool loopback = false;
};
// "127.0.0.1:8080", "[::1]:8080" or "localhost:8080". Error: invalid_argument.
Result<ListenAddress> parse_listen(std::string_view text);

}  // namespace tandem::service
