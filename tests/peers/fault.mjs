// Faults to come, one request each: a plan names the call and what goes wrong.

export async function applyPlan() {
	return false;
}
