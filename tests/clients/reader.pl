#!/usr/bin/perl
# Reads a file to its end the way its first argument says and writes what it got to stdout.
# Modes: slurp, lines, sysread, read.
use strict;
use warnings;

my ($mode, $path) = @ARGV;
open(my $file, '<:raw', $path) or die "$path: $!";
binmode(STDOUT);
if ($mode eq 'slurp') {
	local $/;
	print scalar <$file>;
} elsif ($mode eq 'lines') {
	print while <$file>;
} else {
	my ($buffer, $n);
	while ($n = $mode eq 'sysread' ? sysread($file, $buffer, 4096) : read($file, $buffer, 1000)) {
		print $buffer;
	}
	defined($n) or die "$path: $!";
}
close(STDOUT) or die "stdout: $!";
